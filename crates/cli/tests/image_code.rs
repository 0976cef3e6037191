//! `commonhold image build` and `image stub` as people use them. No host is needed here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn gcc(&self, arguments: &[&str]) {
        let output = Command::new("gcc").args(arguments).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn image(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold"));
        command.arg("image").args(words).arg("--store").arg(self.path("store")).current_dir(self.0.path());
        command.output().unwrap()
    }

    fn says(&self, words: &[&str]) -> String {
        let output = self.image(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn complaint(&self, words: &[&str]) -> String {
        let output = self.image(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("commonhold: ") && said.lines().count() == 1, "{said}");
        said
    }
}

fn run(program: &Path) -> String {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_library_is_built_linked_updated_and_rolled_back() {
    let place = Place(TempDir::new().unwrap());
    place.write(
        "one.c",
        "#include <stdlib.h>\nint many = 1; void *kept; int words(void) { kept = malloc(1); free(kept); return many; }",
    );
    place.write("two.c", "int words(void) { return 2; } int more(void) { return 3; }");
    place.write("less.c", "int more(void) { return 3; }");
    for name in ["one", "two", "less"] {
        place.gcc(&["-O2", "-fPIC", "-shared", "-o", &format!("lib{name}.so"), &format!("{name}.c")]);
    }
    place.write("handed.txt", "malloc # and its counterpart\nfree\n");
    let build = |library: &str, version: &str| -> Vec<String> {
        ["build", library, "--name", "words", "--version", version, "--table", "handed.txt"]
            .map(str::to_owned)
            .into()
    };
    let words = build("libone.so", "1.0.0");
    let said = place.says(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("words@1.0.0 at 0x3") && said.contains("1 function;"), "{said}");
    assert!(
        said.contains("hand over") && said.contains("malloc") && said.contains("because it is data"),
        "{said}"
    );
    place.write(
        "program.c",
        "#include <stdio.h>\nint words(void); int main(void) { printf(\"%d\\n\", words()); }",
    );
    place.says(&["stub", "words@1", "-o", "libwords_stub.a"]);
    place.gcc(&["-o", "program", "program.c", "-L.", "-lwords_stub"]);
    assert_eq!(run(&place.path("program")), "1\n");
    let words = build("libtwo.so", "1.1.0");
    place.says(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(run(&place.path("program")), "2\n");
    let words = build("libless.so", "1.2.0");
    let said = place.complaint(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("words, which programs call by slot 0, is not there any more"), "{said}");
    assert!(place.says(&["show", "words@1"]).contains("more"));
    place.says(&["rollback", "words@1.1.0"]);
    assert_eq!(run(&place.path("program")), "1\n");
    place.says(&["verify"]);
    let said = place.complaint(&["stub", "words", "-o", "x.o"]);
    assert!(said.contains("words@1"), "{said}");
    place.complaint(&["stub", "words@7", "-o", "x.o"]);
    place.complaint(&["build", "libone.so", "--name", "words", "--version", "1.0"]);
    place.complaint(&["build", "nothing.so", "--name", "words", "--version", "1.0.0"]);
}

#[test]
fn a_group_is_said_and_shares_addresses() {
    let place = Place(TempDir::new().unwrap());
    place.write("one.c", "int words(void) { return 1; }");
    place.gcc(&["-O2", "-fPIC", "-shared", "-o", "libone.so", "one.c"]);
    let built = |name: &str| {
        let said = place.says(&[
            "build",
            "libone.so",
            "--name",
            name,
            "--version",
            "1.0.0",
            "--group",
            "words",
            "--json",
        ]);
        serde_json::from_str::<serde_json::Value>(&said).unwrap()["base"].clone()
    };
    assert_eq!(built("one"), built("other"));
    assert!(place.says(&["show", "other"]).contains("others of the group words"));
    assert!(place.says(&["ranges", "--json"]).contains("\"words\""));
    let arguments = ["build", "libone.so", "--name", "one", "--version", "1.1.0", "--group", "w r d"];
    assert!(place.complaint(&arguments).contains("names no group"));
}
