//! Labels of SELinux: what stands for a file bears its label, so that the machine's policy lets the same programs use both.

use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::path::Path;

const NAME: &str = "security.selinux";

/// None where files have no labels.
fn of(path: &Path) -> Option<Vec<u8>> {
    let mut label = vec![0; 4096];
    let length = getxattr(path, NAME, &mut label).ok()?;
    label.truncate(length);
    Some(label)
}

/// The one gets the other's label, where that has one and the policy allows it. What has it is not touched: that would be
/// a change of its state.
pub fn keep(from: &Path, to: &Path) {
    if let Some(label) = of(from)
        && of(to).as_ref() != Some(&label)
    {
        let _ = setxattr(to, NAME, &label, XattrFlags::empty());
    }
}
