use commonhold_rebase::*; use std::path::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s = store::Store::open(Path::new(&a[1]), commonhold_images::ranges::Owner::Machine).unwrap();
    let t=std::time::Instant::now();
    let r = build::build(&s, &a[2..].iter().map(PathBuf::from).collect(), &|_, _| ()).unwrap();
    println!("{:?} {:?}", t.elapsed(), r);
}
