//! `turn-writer`: writes a word of a page when it has seen that another process wrote its own.

use crate::failure::{Result, failed};
use crate::objects;
use crate::view::{PAGE, View};
use crate::worker;
use commonhold_sys::process;
use std::path::Path;

/// Looks at its word between two looks at its standard input.
const LOOKS: u32 = 1 << 14;

/// Arguments: state directory, name, the page that it follows, its own. Page 0 counts on when it has been followed; the others
/// take what they see. Ends with its standard input.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, before, own] = arguments else { return failed("turn-writer takes four arguments") };
    let mapping = super::open_soon(Path::new(state), name)?.map(&objects::everything())?;
    let (view, before, own) = (View::of(&mapping), before.parse::<usize>()?, own.parse::<usize>()?);
    worker::say("ready")?;
    let mut value = view.load(own * PAGE);
    for look in 0u32.. {
        if look.is_multiple_of(LOOKS) && process::readable_within(std::io::stdin(), 0)? {
            break;
        }
        let seen = view.load(before * PAGE);
        if (own == 0) != (seen == value) {
            std::thread::yield_now();
            continue;
        }
        value = if own == 0 { value + 1 } else { seen };
        view.store(own * PAGE, value);
    }
    Ok(())
}
