//! `commonhold-attacks list` names all attacks; `commonhold-attacks run [WORD…]` runs those whose name has one of the
//! words (none: all), one after the other, and prints a line of JSON for each.

use commonhold_attacks::{all, run::run};
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("list") => {
            all().iter().for_each(|attack| println!("{}: {}", attack.id, attack.tries));
            ExitCode::SUCCESS
        }
        Some("run") => run_all(&words[1..]),
        _ => {
            eprintln!("commonhold-attacks: say `list`, or `run` and parts of names");
            ExitCode::FAILURE
        }
    }
}

fn run_all(words: &[String]) -> ExitCode {
    let chosen = |id: &str| words.is_empty() || words.iter().any(|word| id.contains(word.as_str()));
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
                "collateral_ms": outcome.noticed.longest.as_secs_f64() * 1000.0,
                "rounds": outcome.noticed.rounds,
                "seconds": outcome.took.as_secs_f64(),
            })
        );
    }
    if breaches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
