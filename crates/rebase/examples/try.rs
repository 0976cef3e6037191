//! .
use commonhold_rebase::*; use std::path::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s = store::Store::open(Path::new(&a[1]), commonhold_images::ranges::Owner::Machine).unwrap();
    let t=std::time::Instant::now();
    let r = build::build(&s, &a[2..].iter().map(|p| match p.strip_prefix("x") { Some(p) => (PathBuf::from(p), true), None => (PathBuf::from(p), false)}).collect(), &|_, _| ()).unwrap();
    println!("{:?} {:?}", t.elapsed(), r);
}
