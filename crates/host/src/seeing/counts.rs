//! The numbers of one object at this host. The cache says which faults came, the driver which events and actions.

use super::hot::{Entry, Hot};
use super::told::Told;
use super::trace::Trace;
use crate::types::Way as Formats;
use commonhold_coherence::{Access, Action, Event, HostId, Span};
use commonhold_object::{
    Counts, MessageCount, MessageKind, PAGE_SIZE_BYTES, PageCount, TraceLine, TracePlace, Traced,
};
use commonhold_tags::Translated;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

/// The sorts of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A missing page is read.
    Read,
    /// A missing page is written.
    Write,
    /// A protected page is written.
    Protection,
}

impl Fault {
    /// From what the kernel says.
    pub fn new(write: bool, protected: bool) -> Fault {
        match (protected, write) {
            (true, _) => Fault::Protection,
            (false, true) => Fault::Write,
            (false, false) => Fault::Read,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Fault::Read => "read fault",
            Fault::Write => "write fault",
            Fault::Protection => "protection fault",
        }
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Local,
    Sent,
    Received,
}

struct Messages {
    name: &'static str,
    kind: MessageKind,
    of_way: [u64; 3],
}

#[derive(Default)]
struct Table {
    counts: Counts,
    messages: Vec<Messages>,
    hot: Hot,
}

/// All that is counted of one object. Its lock is held for moments, and while it is held no other is taken.
#[derive(Default)]
pub struct Seen {
    table: Mutex<Table>,
    trace: Trace,
    /// Pages of 4 KiB in one of the scheduler's, and in the object; none where nothing schedules it.
    sizes: OnceLock<(u64, u64)>,
}

fn now_ns() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

impl Seen {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object is scheduled in pages of so many of 4 KiB, and has so many of these. What is told of a page is of the
    /// scheduler's, which is called by its first.
    pub fn is_scheduled(&self, unit: u64, size: u64) {
        let _ = self.sizes.set((unit, size));
    }

    fn unit(&self) -> u32 {
        self.sizes.get().map_or(1, |(unit, _)| *unit as u32)
    }

    /// Pages of 4 KiB in these of the scheduler's: the last of the object may be shorter.
    fn frames_in(&self, pages: impl Iterator<Item = u32>) -> u64 {
        match self.sizes.get() {
            Some((unit, size)) if *unit > 1 => {
                let of = |page: u32| (*unit).min(size.saturating_sub(u64::from(page) * unit));
                pages.map(of).sum()
            }
            _ => pages.count() as u64,
        }
    }

    /// A thread touched a page.
    pub fn fault(&self, page: u64, fault: Fault) {
        let page = page as u32;
        let mut table = self.table();
        let counts = &mut table.counts;
        match fault {
            Fault::Read => counts.read_faults += 1,
            Fault::Write => counts.write_faults += 1,
            Fault::Protection => counts.protection_faults += 1,
        }
        table.hot.heat(page / self.unit()).faults[fault as usize] += 1;
        drop(table);
        self.trace.note(|| TraceLine {
            number: 0,
            at_ns: now_ns(),
            from: 0,
            to: 0,
            what: fault.name().to_owned(),
            kind: None,
            first_page: page,
            pages: 1,
            bytes: 0,
        });
    }

    /// A fault waited for so long, and goes on.
    pub fn waited(&self, time: Duration) {
        let ns = time.as_nanos() as u64;
        let counts = &mut self.table().counts;
        counts.waits += 1;
        counts.waited_ns += ns;
        counts.longest_wait_ns = counts.longest_wait_ns.max(ns);
    }

    /// A fault ended in SIGBUS.
    pub fn refused(&self) {
        self.table().counts.refused += 1;
    }

    /// The driver tells its scheduler of this.
    pub fn event<M: Told>(&self, me: HostId, event: &Event<M>) {
        if let Event::Message { from, message } = event {
            self.message(*from, me, message, if *from == me { Way::Local } else { Way::Received });
        }
    }

    /// The driver sends a message to another host.
    pub fn said(&self, me: HostId, to: HostId, message: &impl Told) {
        self.message(me, to, message, Way::Sent);
        if message.asker().is_some_and(|asker| asker != me) {
            let mut table = self.table();
            table.counts.forwards += 1;
            for page in message.pages() {
                if let Some(entry) = table.hot.known(page) {
                    entry.forwards += 1;
                }
            }
        }
    }

    /// A host said that of what is no page.
    pub fn heard(&self, from: HostId, me: HostId, message: &impl Told) {
        self.message(from, me, message, Way::Received);
    }

    /// The scheduler wants this done.
    pub fn action<M>(&self, me: HostId, action: &Action<M>) {
        match action {
            Action::Install { span, access: Access::Write, .. } => {
                let mut table = self.table();
                table.counts.hand_overs += u64::from(span.count);
                for page in span.pages() {
                    if let Some(entry) = table.hot.known(page) {
                        entry.hand_overs += 1;
                        entry.owner = Some(me);
                    }
                }
            }
            Action::Restrict { page, .. } => {
                let mut table = self.table();
                table.counts.taken += 1;
                if let Some(entry) = table.hot.known(*page)
                    && entry.owner == Some(me)
                {
                    entry.owner = None;
                }
            }
            Action::Synced { pages, conflicts } => {
                let counts = &mut self.table().counts;
                counts.syncs += 1;
                counts.synced_pages += u64::from(*pages);
                counts.conflicts += u64::from(*conflicts);
            }
            _ => {}
        }
    }

    fn message(&self, from: HostId, to: HostId, message: &impl Told, way: Way) {
        let run = message.run();
        let others = if run.is_none() { message.pages() } else { Vec::new() };
        let pages = || run.into_iter().flat_map(Span::pages).chain(others.iter().copied());
        let frames = self.frames_in(pages());
        let bytes = if message.carried() > 0 { frames * PAGE_SIZE_BYTES } else { 0 };
        let mut table = self.table();
        table.messages_of(message.name(), message.kind()).of_way[way as usize] += 1;
        match way {
            Way::Local => {}
            Way::Sent => table.counts.bytes_sent += bytes,
            Way::Received => table.counts.bytes_received += bytes,
        }
        for page in pages() {
            if way != Way::Local {
                let frames = if bytes > 0 { self.frames_in(std::iter::once(page)) } else { 0 };
                table.see_page(page, from, to, message, way).bytes += frames * PAGE_SIZE_BYTES;
            } else if let Some(entry) = table.hot.known(page) {
                entry.local += 1;
            }
        }
        drop(table);
        self.trace.note(|| TraceLine {
            number: 0,
            at_ns: now_ns(),
            from: from.0,
            to: to.0,
            what: message.name().to_owned(),
            kind: Some(message.kind()),
            first_page: pages().next().unwrap_or(0) * self.unit(),
            pages: frames as u32,
            bytes: if way == Way::Local { 0 } else { bytes },
        });
    }

    /// Bytes of it had to change their format.
    pub fn translated(&self, way: Formats, done: Translated) {
        let counts = &mut self.table().counts;
        let of_way = match way {
            Formats::Received => &mut counts.translated,
            Formats::Stored => &mut counts.stored_translated,
        };
        *of_way = of_way.and(done);
    }

    /// What was translated of it, either way.
    pub fn all_translated(&self) -> Translated {
        let table = self.table();
        table.counts.translated.and(table.counts.stored_translated)
    }

    /// The numbers, messages by name, and the hottest pages.
    pub fn told(&self, hottest: usize) -> (Counts, Vec<MessageCount>, Vec<PageCount>) {
        let table = self.table();
        let told = |messages: &Messages| MessageCount {
            name: messages.name.to_owned(),
            kind: messages.kind,
            local: messages.of_way[Way::Local as usize],
            sent: messages.of_way[Way::Sent as usize],
            received: messages.of_way[Way::Received as usize],
        };
        let mut pages = table.hot.hottest(hottest);
        pages.iter_mut().for_each(|page| page.page *= u64::from(self.unit()));
        (table.counts.clone(), table.messages.iter().map(told).collect(), pages)
    }

    /// Lines of the trace, which goes on for a while from now.
    pub fn traced(&self, place: Option<TracePlace>) -> Traced {
        self.trace.fetch(place)
    }
}

impl Table {
    fn messages_of(&mut self, name: &'static str, kind: MessageKind) -> &mut Messages {
        let at = self.messages.iter().position(|messages| messages.name == name).unwrap_or_else(|| {
            self.messages.push(Messages { name, kind, of_way: [0; 3] });
            self.messages.len() - 1
        });
        &mut self.messages[at]
    }

    /// What a message to or from another host says of a page, and of who owns it.
    fn see_page(&mut self, page: u32, from: HostId, to: HostId, message: &impl Told, way: Way) -> &mut Entry {
        let entry = self.hot.heat(page);
        entry.messages[message.kind() as usize] += 1;
        if way == Way::Sent && message.hands_over() {
            entry.owner = Some(to);
        } else if way == Way::Received && message.gives_back() && entry.owner == Some(from) {
            entry.owner = None;
        } else if way == Way::Sent && message.asker().is_some_and(|asker| asker != from) {
            entry.owner = message.asker().filter(|_| message.name() == "write").or(entry.owner);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_coherence::{Span, central, explicit, forwarding};

    const ME: HostId = HostId(1);
    const OTHER: HostId = HostId(2);
    const THIRD: HostId = HostId(3);

    #[test]
    fn a_home_knows_who_owns_a_page() {
        let seen = Seen::default();
        let grant = |access| central::Message::Grant { span: Span::one(5), access, with_data: true };
        seen.said(ME, OTHER, &grant(Access::Write));
        let (counts, messages, pages) = seen.told(10);
        assert_eq!((counts.bytes_sent, pages[0].owner), (4096, Some(2)));
        assert_eq!((messages[0].name.as_str(), messages[0].sent, messages[0].local), ("grant", 1, 0));
        let message = central::Message::PageOut { page: 5, answers: true, keeps: Access::Read };
        seen.event(ME, &Event::Message { from: OTHER, message });
        let (counts, messages, pages) = seen.told(10);
        assert_eq!((counts.bytes_received, pages[0].owner, pages[0].messages), (4096, None, 2));
        assert_eq!((pages[0].bytes, pages[0].by_kind, pages[0].local), (2 * 4096, [0, 2, 0], 0));
        assert_eq!((messages[1].name.as_str(), messages[1].kind), ("page-out", MessageKind::Page));
        seen.event(ME, &Event::Message { from: ME, message: grant(Access::Write) });
        let install: Action<central::Message> =
            Action::Install { span: Span::one(5), access: Access::Write, with_data: false };
        seen.action(ME, &install);
        let (counts, messages, pages) = seen.told(10);
        assert_eq!((pages[0].owner, pages[0].hand_overs, counts.hand_overs), (Some(1), 1, 1));
        assert_eq!((messages[0].local, messages[0].sent, counts.bytes_sent), (1, 1, 4096));
        assert_eq!((pages[0].local, pages[0].messages), (1, 2));
    }

    #[test]
    fn a_request_passed_on_is_a_forward_and_the_asker_will_own_the_page() {
        let seen = Seen::default();
        let write = |who| forwarding::Message::Write { page: 3, who, keeps_copy: false };
        seen.said(ME, OTHER, &write(ME));
        assert_eq!(seen.told(1).0.forwards, 0, "its own request");
        seen.event(ME, &Event::Message { from: THIRD, message: write(THIRD) });
        seen.said(ME, OTHER, &write(THIRD));
        let (counts, _, pages) = seen.told(1);
        assert_eq!((counts.forwards, pages[0].owner), (1, Some(3)));
        assert_eq!((pages[0].forwards, pages[0].by_kind), (1, [3, 0, 0]));
        seen.said(
            ME,
            THIRD,
            &forwarding::Message::HandOver {
                page: 3,
                number: 1,
                keepers: Default::default(),
                before: Default::default(),
            },
        );
        assert_eq!(seen.told(1).0.bytes_sent, 4096);
    }

    #[test]
    fn conflicts_and_lists_of_pages_are_counted() {
        let seen = Seen::default();
        seen.said(ME, OTHER, &explicit::Message::Sync { pages: vec![1, 7, 9] });
        seen.action::<explicit::Message>(ME, &Action::Synced { pages: 3, conflicts: 2 });
        let (counts, _, pages) = seen.told(10);
        assert_eq!((counts.syncs, counts.synced_pages, counts.conflicts), (1, 3, 2));
        assert_eq!(pages.iter().map(|page| page.page).collect::<Vec<_>>(), [1, 7, 9]);
        assert_eq!(counts.bytes_sent, 3 * 4096);
    }

    #[test]
    fn larger_pages_are_called_by_their_first_and_counted_whole() {
        let seen = Seen::default();
        seen.is_scheduled(16, 40);
        seen.fault(35, Fault::Write);
        seen.said(ME, OTHER, &central::Message::PageOut { page: 2, answers: true, keeps: Access::None });
        seen.said(ME, OTHER, &central::Message::PageOut { page: 1, answers: true, keeps: Access::None });
        let (counts, _, pages) = seen.told(10);
        assert_eq!(counts.bytes_sent, (8 + 16) * 4096, "the last one is shorter");
        let bytes: Vec<_> = pages.iter().map(|page| page.bytes).collect();
        assert_eq!(bytes, [8 * 4096, 16 * 4096]);
        assert_eq!(pages.iter().map(|page| page.page).collect::<Vec<_>>(), [32, 16], "the hotter first");
    }

    #[test]
    fn faults_and_waits_are_counted() {
        let seen = Seen::default();
        let place = seen.traced(None).place;
        for (write, protected) in [(false, false), (true, false), (true, true), (true, true)] {
            seen.fault(8, Fault::new(write, protected));
        }
        seen.waited(Duration::from_micros(3));
        seen.waited(Duration::from_micros(2));
        let (counts, _, pages) = seen.told(1);
        assert_eq!((counts.read_faults, counts.write_faults, counts.protection_faults), (1, 1, 2));
        assert_eq!((counts.waits, counts.waited_ns, counts.longest_wait_ns), (2, 5000, 3000));
        assert_eq!((pages[0].heat, pages[0].protection_faults), (4, 2));
        let lines = seen.traced(Some(place)).lines;
        assert_eq!(
            lines.iter().map(|line| line.what.as_str()).collect::<Vec<_>>(),
            ["read fault", "write fault", "protection fault", "protection fault"]
        );
    }
}
