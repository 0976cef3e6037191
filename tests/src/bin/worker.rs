//! A client process under test: see `commonhold_tests::agent`.

fn main() {
    commonhold_tests::agent::run();
}
