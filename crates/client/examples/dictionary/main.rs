//! A dictionary from a package of the distribution, built once as an image and then used by 8 processes at once: none of
//! them parses anything, and all of them have the same memory. `demo/dictionary.sh` installs a list of words and runs it.
//!
//! ```text
//! dictionary build FILE      # one word a line; publishes dictionary@1.0.0, or the next minor version
//! dictionary has WORD…
//! dictionary show FILE       # 8 processes look up every word of the file
//! ```

mod words;

use commonhold::image::{Store, include};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Instant;
use words::{Dictionary, publish, words_of};

/// How many use it at once.
const PROCESSES: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["build", file] => build(file),
        ["has", ref words @ ..] if !words.is_empty() => has(words),
        ["show", file] => show(file),
        ["look-up", file] => look_up(file),
        _ => Err("say `build FILE`, `has WORD…` or `show FILE`".into()),
    }
}

fn build(file: &str) -> Result<(), Box<dyn Error>> {
    let all = words_of(&std::fs::read_to_string(file)?);
    let store = Store::own()?;
    let versions = store.versions("dictionary")?;
    let minor = versions.iter().filter(|one| one.version.major == 1).map(|one| one.version.minor + 1).max();
    let name = format!("dictionary@1.{}.0", minor.unwrap_or(0));
    let begun = Instant::now();
    let published = publish(&store, &name, &all)?;
    let bytes = std::fs::metadata(&published.path)?.len();
    println!(
        "{name}: {} words, {bytes} bytes, built in {:.1?}: {}",
        all.len(),
        begun.elapsed(),
        published.path.display()
    );
    Ok(())
}

fn has(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let dictionary = Dictionary::of(include("dictionary@1")?)?;
    for word in words {
        println!("{word}: {}", if dictionary.has(word) { "yes" } else { "no" });
    }
    Ok(())
}

/// Starts the processes. When all have looked up all words each says how much memory it has: none ends, or is yet to include
/// the image, while another looks.
fn show(file: &str) -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let start = |_| {
        Command::new(&program).args(["look-up", file]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut children = (0..PROCESSES).map(start).collect::<std::io::Result<Vec<_>>>()?;
    let mut said: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    // Each says that it has looked; each is told to go on; each says what it has.
    line_of_each(&mut said)?;
    for child in &mut children {
        child.stdin.as_mut().unwrap().write_all(b"\n")?;
    }
    print!("{}", line_of_each(&mut said)?.concat());
    for mut child in children {
        drop(child.stdin.take());
        if !child.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    Ok(())
}

fn line_of_each(said: &mut [BufReader<ChildStdout>]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut lines = Vec::new();
    for one in said {
        let mut line = String::new();
        if one.read_line(&mut line)? == 0 {
            return Err("a process failed".into());
        }
        lines.push(line);
    }
    Ok(lines)
}

/// One of the processes.
fn look_up(file: &str) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let begun = Instant::now();
    let image = include("dictionary@1")?;
    let dictionary = Dictionary::of(image)?;
    let included = begun.elapsed();
    let begun = Instant::now();
    let asked = text.lines().map(str::trim).filter(|word| !word.is_empty());
    let missing = asked.filter(|word| !dictionary.has(word)).count();
    let looked = begun.elapsed();
    println!("ready");
    let mut input = std::io::stdin().lines();
    input.next().ok_or("nobody asks any more")??;
    let (pss, private) = memory(&image.id().to_string())?;
    println!(
        "process {}: {image:?} with {} words, included in {included:.1?}, looked up in {looked:.1?}, {missing} missing; of the image this \
         process has {pss} KiB as its share, {private} KiB alone",
        std::process::id(),
        dictionary.count
    );
    // It stays until all have said theirs.
    input.for_each(drop);
    Ok(())
}

/// KiB of the image's memory: this process's share, and what it has alone and changed.
fn memory(id: &str) -> Result<(u64, u64), Box<dyn Error>> {
    let maps = std::fs::read_to_string("/proc/self/smaps")?;
    let lines = maps.lines().skip_while(|line| !line.ends_with(id)).take(25);
    let of = |name: &str| {
        let line = lines.clone().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    Ok((of("Pss:"), of("Private_Dirty:")))
}
