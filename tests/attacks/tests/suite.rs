//! Every attack as a test of its own name.

use commonhold_attacks::{all, run::run};
use libtest_mimic::{Arguments, Failed, Trial};

#[path = "../../left_out.rs"]
mod left_out;

fn main() {
    // Words choose tests that have one of them in their names, as with the tests of all other crates.
    let (flags, words): (Vec<String>, Vec<String>) = std::env::args().partition(|word| word.starts_with('-'));
    let (program, words) = words.split_first().expect("a program has a name");
    let mut arguments = Arguments::from_iter(std::iter::once(program).chain(&flags));
    // A bystander is to be held up by the attack, not by other attacks.
    arguments.test_threads.get_or_insert(2);
    if !rustix::process::geteuid().is_root() {
        return left_out::left_out("all attacks (they need root, who runs the host, and two other users)");
    }
    let trial = |attack: &'static commonhold_attacks::Attack| {
        Trial::test(attack.id, move || {
            let outcome = run(attack);
            if let Some(why) = outcome.left_out {
                left_out::left_out(&format!("{}: {why}", attack.id));
            }
            outcome.breach.map_or(Ok(()), |why| Err(Failed::from(format!("it got through: {why}"))))
        })
    };
    let chosen = |id: &str| words.is_empty() || words.iter().any(|word| id.contains(word.as_str()));
    let trials = all().into_iter().filter(|attack| chosen(attack.id)).map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}
