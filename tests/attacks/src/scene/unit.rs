//! What the shipped unit lets a host do.

/// The shipped unit, whose capabilities the hosts of the suite have. It bounds no memory, and its
/// limits on open files and locked memory are as high as they can be.
const UNIT: &str = include_str!("../../../../packaging/commonhold.service");

/// Words before a program, with which it has the rights that the unit gives, and no more.
pub fn words() -> Vec<String> {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.expect("the unit bounds its capabilities").split_whitespace();
    let capabilities = names.fold("--bounding-set=-all".to_owned(), |all, name| {
        let name = name.strip_prefix("CAP_").expect("a capability").to_lowercase();
        format!("{all},+{name}")
    });
    ["setpriv", "--no-new-privs", "--inh-caps=-all", &capabilities].map(str::to_owned).to_vec()
}
