//! What is shipped has no points for faults: the variable that they are told by is nowhere in it.

/// The name of that variable.
const MARK: &[u8] = b"COMMONHOLD_FAULTS";

fn has_mark(program: &std::path::Path) -> bool {
    let bytes = std::fs::read(program).unwrap();
    bytes.windows(MARK.len()).any(|part| part == MARK)
}

#[test]
fn only_a_build_for_faults_has_points() {
    // This program has the mark: it would be found.
    assert!(has_mark(&std::env::current_exe().unwrap()));
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_commonhold"));
    assert_eq!(has_mark(program), cfg!(feature = "faults"));
}
