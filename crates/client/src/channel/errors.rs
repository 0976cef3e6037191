//! What a queue refuses, in words.

use super::Channel;
use crate::{Error, ErrorKind};
use commonhold_channel::{Refused, SLOTS, Wait};

/// What was asked of the queue.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) bytes: usize,
    pub(super) wait: Wait,
}

impl Channel {
    pub(super) fn explain(&self, refused: Refused, asked: Asked) -> Error {
        let (name, bytes) = (self.inner.object.core.label(), asked.bytes);
        let (kind, what) = match refused {
            Refused::NotAQueue(found) => match commonhold_channel::other_version(found) {
                Some(version) => (
                    ErrorKind::Version,
                    format!(
                        "another version of Commonhold made its queue (format {version}): receive what is in it with that \
                         version, remove the channel, and create it anew"
                    ),
                ),
                None => (ErrorKind::Mismatch, "it holds no queue".to_owned()),
            },
            Refused::Damaged(why) => (
                ErrorKind::Corrupt,
                format!(
                    "the channel's queue was damaged by a program that may write it ({why}): \
                     remove the channel, and create it anew"
                ),
            ),
            Refused::TooLarge { most } => (
                ErrorKind::Invalid,
                format!(
                    "a message of {bytes} bytes is larger than the {most} that it takes: create it \
                     with a larger capacity, or send it as a region"
                ),
            ),
            Refused::Full => (
                ErrorKind::TimedOut,
                format!(
                    "there was no room for {bytes} bytes before the deadline: its receivers are slow, or there is none"
                ),
            ),
            Refused::Empty => (ErrorKind::TimedOut, "no message came before the deadline".to_owned()),
            Refused::TooSmall { length } => (
                ErrorKind::Invalid,
                format!("the next message has {length} bytes, more than the buffer; it is still there"),
            ),
            Refused::UnknownForm(form) => (
                ErrorKind::Unsupported,
                format!(
                    "a message of form {form}, which this version does not know, was taken out and \
                     dropped: use the version of its sender"
                ),
            ),
            Refused::Locked { thread } => (
                if asked.wait == Wait::No { ErrorKind::Busy } else { ErrorKind::TimedOut },
                format!(
                    "thread {thread} is in the queue, maybe stopped: try again, let it go on (kill -CONT), or end it"
                ),
            ),
            Refused::NoLanding { largest } => (
                ErrorKind::TimedOut,
                format!(
                    "its receiver posted no landing for {bytes} bytes before the deadline; the \
                     largest that is free has {largest}"
                ),
            ),
            Refused::NoSlot => (
                ErrorKind::TooMany,
                format!(
                    "{SLOTS} landings are posted, as many as can be: withdraw one (or all, after a receiver died)"
                ),
            ),
            Refused::Withdrawn => (
                ErrorKind::Lost,
                "the landing was withdrawn by its receiver, or is none: send again".to_owned(),
            ),
        };
        Error::new(kind, format!("channel {name}: {what}"))
    }
}
