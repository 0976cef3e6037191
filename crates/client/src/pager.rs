//! A pager of the user's: a process that supplies and stores the pages of some objects.
//!
//! It has a connection of its own, on which the host asks and the pager answers. When a new host process took
//! over, the host asks again what was not answered; an answer to what is no longer asked is ignored there.

use commonhold_object::limits;
use commonhold_object::wire::{Event, PagerReply};
use commonhold_points as points;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Supplies and stores the pages of the objects that were created with its name.
///
/// The host asks one thing at a time of each connection, gives up after the object's `pager_deadline`, and
/// passes an error (or a panic) to whoever waits for the page.
pub trait Pager {
    /// Fills `buffer` with the object's bytes from `offset` on.
    fn page_in(&mut self, object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Stores `data`; returning `Ok` means that it is durable.
    fn page_out(&mut self, object: &str, offset: u64, data: &[u8]) -> io::Result<()>;
}

impl<P: Pager + ?Sized> Pager for &mut P {
    fn page_in(&mut self, object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).page_in(object, offset, buffer)
    }

    fn page_out(&mut self, object: &str, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).page_out(object, offset, data)
    }
}

/// What the pager says to a question of the host's; nothing to what is no question.
pub(crate) fn answer(pager: &mut impl Pager, event: Event) -> Option<(u64, PagerReply)> {
    match event {
        Event::PageIn { call, object, offset, length } => {
            let result = page_in(pager, &object, offset, length);
            Some((call, result.map_or_else(PagerReply::Failed, PagerReply::Data)))
        }
        Event::PageOut { call, object, offset, data } => {
            let store = || points::page_out(|| pager.page_out(&object, offset, &data));
            let result = guarded("page_out", store);
            Some((call, result.map_or_else(PagerReply::Failed, |()| PagerReply::Stored)))
        }
        Event::HostReplaced { .. } | Event::Heal { .. } | Event::Changed { .. } | Event::Revoke { .. } => {
            None
        }
    }
}

fn page_in(
    pager: &mut impl Pager,
    object: &str,
    offset: u64,
    length: u64,
) -> std::result::Result<Vec<u8>, String> {
    if length > limits::PAGER_BYTES {
        return Err(format!(
            "the host asked for {length} bytes at once: the limit is {}",
            limits::PAGER_BYTES
        ));
    }
    let mut buffer = vec![0; length as usize];
    fill(pager, object, offset, &mut buffer)?;
    Ok(buffer)
}

/// Has a buffer filled by the user's code.
pub(crate) fn fill(
    pager: &mut impl Pager,
    object: &str,
    offset: u64,
    buffer: &mut [u8],
) -> std::result::Result<(), String> {
    guarded("page_in", || points::page_in(|| pager.page_in(object, offset, buffer)))
}

/// Runs the user's code; an error or a panic of it becomes one line of text.
fn guarded(what: &str, run: impl FnOnce() -> io::Result<()>) -> std::result::Result<(), String> {
    const LONGEST: usize = 1000;
    let shorten = |text: String| text.chars().take(LONGEST).collect::<String>().replace('\n', " ");
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(shorten(format!("{what}: {error}"))),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(shorten(format!("{what} panicked: {}", text.unwrap_or_else(|| "no message".to_owned()))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Odd;

    impl Pager for Odd {
        fn page_in(&mut self, _: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            assert!(offset != 4096, "a page\nthat panics");
            buffer.fill(7);
            Ok(())
        }

        fn page_out(&mut self, _: &str, _: u64, _: &[u8]) -> io::Result<()> {
            Err(io::Error::other("full"))
        }
    }

    fn ask(event: Event) -> PagerReply {
        answer(&mut Odd, event).expect("an answer").1
    }

    #[test]
    fn errors_and_panics_of_the_users_code_are_answers() {
        let page_in = |offset, length| Event::PageIn { call: 1, object: "/x".into(), offset, length };
        assert_eq!(ask(page_in(0, 4)), PagerReply::Data(vec![7; 4]));
        assert_eq!(ask(page_in(4096, 4)), PagerReply::Failed("page_in panicked: a page that panics".into()));
        assert!(matches!(ask(page_in(0, u64::MAX)), PagerReply::Failed(why) if why.contains("the limit is")));
        let page_out = Event::PageOut { call: 2, object: "/x".into(), offset: 0, data: vec![1] };
        assert_eq!(ask(page_out), PagerReply::Failed("page_out: full".into()));
        assert_eq!(answer(&mut Odd, Event::HostReplaced { generation: 2 }), None);
    }
}
