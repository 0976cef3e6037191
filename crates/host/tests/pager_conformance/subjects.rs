//! One of each pager, over a store of its own.

use crate::player::{Player, Ram};
use commonhold_host::pagers::{AnonymousPager, ExternalPager, FilePager, Pager, PagerLines, TypedPager};
use commonhold_host::types::HostTypes;
use commonhold_tags::{Machine, Tag, Types};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A pager to be tested.
pub struct Subject {
    pub name: &'static str,
    pub pager: Box<dyn Pager>,
    pub size_bytes: u64,
    /// Where a file pager's file is.
    pub path: Option<PathBuf>,
    _store: Store,
}

/// What must live as long as the pager.
enum Store {
    Nothing,
    Directory { _directory: TempDir },
    Process { _player: Player },
}

impl Subject {
    /// Whether the pager keeps what it is given.
    pub fn stores(&self) -> bool {
        !self.pager.is_anonymous()
    }

    pub fn anonymous(size_bytes: u64) -> Subject {
        Subject {
            name: "anonymous",
            pager: Box::new(AnonymousPager),
            size_bytes,
            path: None,
            _store: Store::Nothing,
        }
    }

    /// Over a file that is one hole.
    pub fn file(size_bytes: u64) -> Subject {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(size_bytes).unwrap();
        Subject {
            name: "file",
            pager: Box::new(FilePager::new(file, size_bytes)),
            size_bytes,
            path: Some(path),
            _store: Store::Directory { _directory: directory },
        }
    }

    pub fn external(size_bytes: u64) -> Subject {
        let lines = Arc::new(PagerLines::default());
        let player = Player::honest(&lines, "/pagers/ram", 1, 1000, &Ram::default());
        let pager = ExternalPager::new(
            lines,
            "/pagers/ram".into(),
            1000,
            "/lab/object".into(),
            Duration::from_secs(30),
        );
        Subject {
            name: "external",
            pager: Box::new(pager),
            size_bytes,
            path: None,
            _store: Store::Process { _player: player },
        }
    }

    /// Over a file of a machine of the other byte order: all pages are records.
    pub fn typed(size_bytes: u64) -> Subject {
        let file = Subject::file(size_bytes);
        let record = Tag::of_text("{24: 0 int32, 8 int64*2}").unwrap();
        // A number that the end cuts is nowhere whole: the last page has a tag only where it is one.
        let types = match size_bytes / 4096 {
            0 => Types::default(),
            pages => Types::default().tag(0, pages, &record, Machine::BIG).unwrap(),
        };
        let host: Arc<HostTypes> = Arc::default();
        host.is_of(Machine::LITTLE);
        Subject { name: "typed", pager: TypedPager::before(file.pager, &types, &host, Arc::default), ..file }
    }

    /// One of each.
    pub fn all(size_bytes: u64) -> Vec<Subject> {
        vec![
            Subject::anonymous(size_bytes),
            Subject::file(size_bytes),
            Subject::external(size_bytes),
            Subject::typed(size_bytes),
        ]
    }
}
