//! Refusals of a heap, as errors.

use super::Heap;
use crate::{Error, ErrorKind};
use commonhold_heap::{MOST_NAMES, Refused};

#[cold]
pub(super) fn error(heap: &Heap, refused: Refused) -> Error {
    let inner = &*heap.inner;
    let (kind, what) = match refused {
        Refused::TooLarge => {
            let most = inner.layout.most_bytes();
            (
                ErrorKind::NoSpace,
                format!("so much never fits: a block has {most} bytes at most; create a larger heap"),
            )
        }
        Refused::NoSpace => {
            (ErrorKind::NoSpace, "it is full: free blocks, or create a larger one".to_owned())
        }
        Refused::Foreign => (ErrorKind::Invalid, "no block begins there".to_owned()),
        Refused::NotAllocated => (ErrorKind::Invalid, "the block there is free already".to_owned()),
        Refused::NotEmpty => {
            (ErrorKind::Busy, "the word into which to allocate is not 0: free from it first".to_owned())
        }
        Refused::NoWord => (
            ErrorKind::Invalid,
            "a block is kept in the word of a root, or in a word of a block at a multiple of 8".to_owned(),
        ),
        Refused::BadName => {
            (ErrorKind::Invalid, "a root's name has 1 to 48 bytes, a type's text 1 to 240".to_owned())
        }
        Refused::TooMany => (
            ErrorKind::TooMany,
            format!(
                "all places are taken: {MOST_NAMES} roots and types, 63 arenas in a page of a host, 16 such pages"
            ),
        ),
        Refused::TimedOut => (
            ErrorKind::TimedOut,
            "a process has kept the lock of names for ten seconds: it is stopped, or on another host"
                .to_owned(),
        ),
        Refused::Damaged(problem) => (
            ErrorKind::Corrupt,
            format!(
                "it is damaged: {problem}; a program wrote there that should not. `commonhold heap check` says more"
            ),
        ),
    };
    Error::new(kind, format!("heap {}: {what}", inner.object.core.label()))
}
