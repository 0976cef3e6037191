//! A store of its own for each test, libraries and programs that the C compiler makes.

#![allow(dead_code)]

#[path = "../../../../tests/limit.rs"]
mod limit;

use commonhold_code::existing::Existing;
use commonhold_code::make::{Made, Wanted};
use commonhold_code::stub::When;
use commonhold_code::{Result, build, find, stub};
use commonhold_images::format::Version;
use commonhold_images::ranges::Owner;
use commonhold_images::store::{Published, Store};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub struct Place {
    folder: TempDir,
    pub store: Store,
}

impl Place {
    pub fn new() -> Place {
        limit::begin();
        let folder = TempDir::new().unwrap();
        let store = Store::at(&folder.path().join("store"), Owner::Machine);
        store.create().unwrap();
        Place { folder, store }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the compiler in the folder.
    pub fn gcc(&self, arguments: &[&str]) {
        let output = Command::new("gcc").args(arguments).current_dir(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "gcc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// A shared library from this text of C.
    pub fn library(&self, name: &str, text: &str, more: &[&str]) -> PathBuf {
        let source = format!("{name}.c");
        self.write(&source, text);
        let out = format!("lib{name}.so");
        let mut arguments = vec!["-O2", "-fPIC", "-shared", "-o", &out, &source];
        arguments.extend(more);
        self.gcc(&arguments);
        self.path(&out)
    }

    pub fn wanted(&self, library: &Path, name: &str, version: &str) -> Wanted {
        Wanted {
            library: library.to_owned(),
            name: name.into(),
            version: Version::parse(version).unwrap(),
            group: None,
            exports: None,
            imports: Vec::new(),
            table: Default::default(),
        }
    }

    pub fn build(&self, wanted: &Wanted) -> Result<(Made, Published)> {
        build(wanted, &self.store)
    }

    /// A library from this text of C, as an image.
    pub fn image(&self, name: &str, version: &str, text: &str) -> Published {
        let library = self.library(&format!("{name}-{version}"), text, &[]);
        self.build(&self.wanted(&library, name, version)).unwrap().1
    }

    pub fn find(&self, text: &str) -> Existing {
        find(std::slice::from_ref(&self.store), text).unwrap()
    }

    /// Writes the stub and gives the name of its file.
    pub fn stub(&self, text: &str, when: When) -> String {
        let (bytes, image) = stub(std::slice::from_ref(&self.store), text, when).unwrap();
        let name = format!("{}_stub.o", image.name);
        std::fs::write(self.path(&name), bytes).unwrap();
        name
    }

    /// A program from this text of C.
    pub fn program(&self, name: &str, text: &str, more: &[&str]) -> PathBuf {
        let source = format!("{name}.c");
        self.write(&source, text);
        let mut arguments = vec!["-O1", "-o", name, &source];
        arguments.extend(more);
        self.gcc(&arguments);
        self.path(name)
    }

    /// What a program says; it must end well.
    pub fn run(&self, program: &Path) -> String {
        let output = self.try_run(program);
        assert!(
            output.status.success(),
            "{program:?}: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn try_run(&self, program: &Path) -> Output {
        Command::new(program).output().unwrap()
    }
}
