//! `commonhold-attacks list` names all attacks; `commonhold-attacks run [WORD…]` runs those whose name has one of the
//! words (none: all), one after the other, and prints a line of JSON for each.

use commonhold_attacks::all;
use commonhold_attacks::run::{run, run_here};
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => all().iter().for_each(|attack| println!("{}: {}", attack.id, attack.tries)),
        ["run", ref words @ ..] => return run_all(words),
        // By `run`, which gives each attack a process of its own.
        ["here", id] => match all().into_iter().find(|attack| attack.id == id) {
            Some(attack) => println!("{}", json!(run_here(attack))),
            None => return ExitCode::FAILURE,
        },
        _ => {
            eprintln!("commonhold-attacks: say `list`, or `run` and parts of names");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run_all(words: &[&str]) -> ExitCode {
    let chosen = |id: &str| words.is_empty() || words.iter().any(|word| id.contains(word));
    let mut breaches = 0;
    for attack in all().into_iter().filter(|attack| chosen(attack.id)) {
        let outcome = run(attack);
        breaches += u32::from(outcome.breach.is_some());
        println!(
            "{}",
            json!({
                "id": attack.id,
                "tries": attack.tries,
                "breach": outcome.breach,
                "left_out": outcome.left_out,
                "collateral_ms": outcome.noticed.map(|noticed| noticed.longest_ms),
                "rounds": outcome.noticed.map(|noticed| noticed.rounds),
                "seconds": outcome.seconds,
            })
        );
    }
    if breaches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
