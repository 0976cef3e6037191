//! Programs that call a library of functions: linked statically, dynamically, and to a code image.

pub mod plot;
pub mod shared_text;
pub mod spent;
pub mod suite;

use crate::failure::{Failure, Result, failed};
use commonhold_code::make::Wanted;
use commonhold_code::stub::When;
use commonhold_images::format::Version;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Runs a tool of the compiler.
pub fn tool(directory: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    let output = output.map_err(|error| Failure::Skipped(format!("{program} does not start: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    failed(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
}

/// Makes a code image of a library in a store of the row's own, and its stub `NAME_stub.o`. `table`: what programs hand
/// over.
pub fn image(directory: &Path, library: &Path, name: &str, table: BTreeSet<String>) -> Result<()> {
    let wrong = |error: commonhold_code::Error| Failure::Failed(error.to_string());
    let store = Store::at(&directory.join("images"), Owner::Machine);
    store.create().map_err(|error| Failure::Failed(error.to_string()))?;
    let version = Version { major: 1, minor: 0, patch: 0 };
    let wanted = Wanted {
        library: library.to_owned(),
        name: name.into(),
        version,
        group: None,
        exports: None,
        imports: Vec::new(),
        table,
    };
    commonhold_code::build(&wanted, &store).map_err(wrong)?;
    let (stub, _) = commonhold_code::stub(&[store], &format!("{name}@1"), When::Start).map_err(wrong)?;
    std::fs::write(directory.join(format!("{name}_stub.o")), stub)?;
    Ok(())
}
