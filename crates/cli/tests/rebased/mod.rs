//! `commonhold rebase` and a program for it.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

#[path = "../../../../tests/limit.rs"]
mod limit;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A directory with a program and a store.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        limit::begin();
        Place(TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// A program that prints how often it was asked, and the number of mappings that are copies.
    pub fn program(&self) -> PathBuf {
        let path = self.path("program");
        let source = self.path("program.c");
        std::fs::write(
            &source,
            r#"#include <stdio.h>
               #include <string.h>
               int main(int n, char **a) {
                   char line[4096]; int copies = 0; FILE *maps = fopen("/proc/self/maps", "r");
                   while (fgets(line, sizeof line, maps)) copies += strstr(line, "/copies/") != NULL;
                   printf("%s %d %s\n", n > 1 ? a[1] : "-", n, copies ? "copies" : "none");
                   return n > 2 ? 7 : 0; }"#,
        )
        .unwrap();
        let made = Command::new("cc").arg("-o").arg(&path).arg(&source).status().unwrap();
        assert!(made.success());
        path
    }

    pub fn rebase(&self, words: &[&str]) -> Output {
        let store = self.path("store");
        let (verb, rest) = words.split_first().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold"));
        command.args(["rebase", verb, "--store"]).arg(store).args(rest);
        command.env_remove("LD_AUDIT").output().unwrap()
    }

    pub fn says(&self, words: &[&str]) -> String {
        let output = self.rebase(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[words, &["--json"]].concat())).unwrap()
    }

    pub fn complaint(&self, words: &[&str]) -> String {
        let output = self.rebase(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.starts_with("commonhold: ") && said.lines().count() == 1, "{said}");
        said
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
