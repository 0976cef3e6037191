//! Every interleaving of threads that share an arena.

use commonhold_engines::races::RACES;

#[test]
fn no_interleaving_loses_a_page() {
    for (name, search) in RACES {
        let interleavings = search();
        println!("{name}: {interleavings} interleavings");
        assert!(interleavings > 1, "{name}");
    }
}
