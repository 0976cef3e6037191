use commonhold_rebase::plan::*; use commonhold_rebase::*; use std::path::*;
fn main() {
    let mut files = Files::default(); let mut programs = vec![];
    let dir = std::env::temp_dir();
    for p in std::env::args().skip(1) { let t=std::time::Instant::now(); match Program::open(Path::new(&p), &mut files, &dir) { Ok(x) => {println!("{p}: {} objects {:?}", x.files.len(), t.elapsed()); programs.push(x)}, Err(e) => println!("{e}") } }
    let t=std::time::Instant::now();
    let plan = Plan::new(files, programs);
    println!("plan {:?}", t.elapsed());
    for (f, why) in &plan.unfit { println!("unfit {} {why}", plan.files.elf(*f).path.display()); }
    for b in &plan.bindings { let n = b.bound.len(); let k = b.bound.iter().flatten().count(); let e = plan.files.elf(b.file); println!("{} named {n} bound {k} relative {}", e.path.display(), e.relocations.relative.len()+e.relocations.table.iter().filter(|r| r.kind==elf::Kind::Relative).count()); }
}
