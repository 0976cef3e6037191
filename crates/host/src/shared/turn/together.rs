//! By forwarding a page is asked for, and comes, by a message of its own. Those of pages in a row travel together, and are
//! done together here: to the scheduler each is an event, and what it wants done is done for all of them at once.

use super::{Came, Turn};
use crate::shared::driver::{Driver, PAGE, State};
use crate::shared::outbox::MOST_BYTES;
use crate::shared::part::Said;
use commonhold_coherence::forwarding::Message;
use commonhold_coherence::{Access, Action, Event, HostId, Span};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many messages, from the first of these on, ask the same for pages in a row, or bring copies of such.
pub(in crate::shared) fn in_a_row(messages: &[Said]) -> usize {
    /// What for, and which page.
    fn of(message: &Said) -> Option<(Option<HostId>, u32)> {
        match message {
            Said::Forwarding(Message::Read { page, who, .. }) => Some((Some(*who), *page)),
            Said::Forwarding(Message::Copy { page }) => Some((None, *page)),
            _ => None,
        }
    }
    let Some((what, first)) = messages.first().and_then(of) else { return messages.len().min(1) };
    let is_next = |(at, message): &(u32, &Said)| of(message) == Some((what, first.saturating_add(*at)));
    (0..).zip(messages).take_while(is_next).count()
}

impl<'d> Turn<'d> {
    /// Messages came about pages in a row, with the bytes of all of them.
    pub fn take_together(
        driver: &'d Arc<Driver>,
        state: &'d mut State,
        from: HostId,
        messages: impl Iterator<Item = Said>,
        bytes: Vec<u8>,
    ) {
        let Some(mut turn) = Turn::begin(driver, state) else { return };
        turn.follow();
        if !turn.left.actions.is_empty() {
            turn.happens_later(from, messages, bytes);
        } else if !turn.state.stuck {
            turn.happened_together(from, messages, bytes);
        }
        turn.follow();
        turn.end();
    }

    /// Each by itself, after what could not be done yet.
    fn happens_later(&mut self, from: HostId, messages: impl Iterator<Item = Said>, bytes: Vec<u8>) {
        let mut bytes = &bytes[..];
        for message in messages {
            let length = self.driver.count_frames(&message.carries().pages()) as usize * PAGE;
            let (own, rest) = bytes.split_at(length.min(bytes.len()));
            bytes = rest;
            self.to_do.push_back((Event::Message { from, message }, own.to_vec()));
        }
    }

    fn happened_together(&mut self, from: HostId, messages: impl Iterator<Item = Said>, bytes: Vec<u8>) {
        let (me, seen) = (self.driver.plan.me, &self.driver.seen);
        let mut actions = std::mem::take(&mut self.actions);
        let mut first = None;
        for message in messages {
            first = first.or_else(|| message.pages().first().copied());
            self.wait_for_holds(&message);
            self.driver.note_wanted(self.state, &message);
            let event = Event::Message { from, message };
            seen.event(me, &event);
            self.state.part.handle(event, &mut actions);
        }
        self.came = Came { bytes, used: 0 };
        self.taken.clear();
        self.owned.clear();
        if !actions.iter().any(|action| matches!(action, Action::Install { .. })) {
            self.protect_together(&mut actions); // earlier than one by one, never later
        }
        let is_counted_later = |action: &&Action<Said>| matches!(action, Action::Restrict { .. });
        actions.iter().filter(|a| !is_counted_later(a)).for_each(|action| seen.action(me, action));
        self.act_together(first.unwrap_or_default(), actions.drain(..).collect());
        self.actions = actions;
        if !self.state.late.is_empty() {
            self.send_late_pages_away();
        }
    }

    /// `first`: the page whose bytes came first.
    fn act_together(&mut self, first: u32, mut actions: VecDeque<Action<Said>>) {
        // What could not be read together is read page by page: each is answered that cannot be.
        let mut can_send = true;
        // If this host begins anew meanwhile, it is as if the others had not come.
        while let Some(action) = actions.pop_front().filter(|_| !self.state.stuck) {
            match action {
                Action::Install { span, access, with_data: true } => {
                    let mut holds = Vec::new();
                    let span = grown(span, access, &mut actions, &mut holds);
                    self.install_together(first, span, access);
                    holds.into_iter().for_each(|page| self.begin_hold(page));
                    continue;
                }
                Action::Send { to, message: Said::Forwarding(Message::Copy { page }) }
                    if can_send && to != self.driver.plan.me =>
                {
                    can_send = self.send_copies(to, page, &mut actions);
                    if can_send {
                        continue;
                    }
                }
                Action::Restrict { page, access } => {
                    if self.restricted(page, access) {
                        continue;
                    }
                    self.left.actions.extend(actions);
                    return;
                }
                _ => {}
            }
            self.act_or_report(action);
        }
    }

    /// Page by page where it cannot be done at once: then only what cannot be had is missing.
    fn install_together(&mut self, first: u32, span: Span, access: Access) {
        let bytes_of = |turn: &mut Self, page: u32| {
            let before = Span::new(first, page.saturating_sub(first));
            turn.came.used = turn.frames_of(before).count as usize * PAGE;
        };
        bytes_of(self, span.first);
        if span.count > 1 && self.install(span, access, true).is_ok() {
            return;
        }
        for page in span.pages() {
            bytes_of(self, page);
            self.act_or_report(Action::Install { span: Span::one(page), access, with_data: true });
        }
    }

    /// Sends this page, and the next of those that go to the same host, as they are in frames. Whether it could.
    fn send_copies(&mut self, to: HostId, page: u32, actions: &mut VecDeque<Action<Said>>) -> bool {
        let Some(cache) = self.cache.as_ref().filter(|_| self.state.late.is_empty()) else { return false };
        let page_bytes = self.frames_of(Span::one(page)).length_bytes() as usize;
        let most = (MOST_BYTES / page_bytes.max(1)) as u32;
        let is_next = |(at, action): &(u32, &Action<Said>)| {
            let next = page.saturating_add(at + 1);
            matches!(action, Action::Send { to: other, message: Said::Forwarding(Message::Copy { page }) }
                if *other == to && *page == next)
        };
        let others = (0..most.saturating_sub(1)).zip(actions.iter()).take_while(is_next).count();
        let frames = self.frames_of(Span::new(page, others as u32 + 1));
        let Ok(bytes) = cache.content(frames.first..frames.end()) else { return false };
        let pages = page..=page + others as u32;
        let copies = pages.map(|page| Said::Forwarding(Message::Copy { page })).collect();
        actions.drain(..others);
        self.driver.say_together(self.state, to, copies, bytes);
        true
    }
}

/// The pages of an installation, and of those that follow it. `holds`: pages whose minimum holds begin with it.
fn grown(mut span: Span, access: Access, actions: &mut VecDeque<Action<Said>>, holds: &mut Vec<u32>) -> Span {
    loop {
        match actions.front() {
            Some(Action::Hold { page }) => holds.push(*page),
            Some(Action::Install { span: next, access: other, with_data: true })
                if *other == access && next.first == span.first + span.count =>
            {
                span.count += next.count;
            }
            _ => return span,
        }
        actions.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_row_is_of_one_kind_for_one_host() {
        let read = |page, who| Said::Forwarding(Message::Read { page, who: HostId(who), hops: 0 });
        let copy = |page| Said::Forwarding(Message::Copy { page });
        let write = |page| Said::Forwarding(Message::Write { page, who: HostId(1), keeps_copy: false });
        for (messages, count) in [
            (vec![], 0),
            (vec![read(4, 1), read(5, 1), read(6, 1), read(8, 1)], 3),
            (vec![read(4, 1), read(5, 2)], 1),
            (vec![copy(7), copy(8), read(9, 1)], 2),
            (vec![copy(7), copy(7)], 1),
            (vec![write(1), write(2)], 1),
            (vec![copy(u32::MAX), copy(0)], 1),
        ] {
            assert_eq!(in_a_row(&messages), count, "{messages:?}");
        }
    }

    #[test]
    fn installations_in_a_row_are_one() {
        let install = |first, access| Action::Install { span: Span::one(first), access, with_data: true };
        let hold = |page| Action::Hold { page };
        let read = Access::Read;
        let mut actions: VecDeque<Action<Said>> =
            [hold(3), install(4, read), hold(4), install(5, Access::Write), hold(5)].into();
        let mut holds = Vec::new();
        assert_eq!(grown(Span::one(3), read, &mut actions, &mut holds), Span::new(3, 2));
        assert_eq!((holds, actions.len()), (vec![3, 4], 2));
        let mut actions = VecDeque::from([Action::Own { page: 4, number: 1 }, install(4, read)]);
        assert_eq!(grown(Span::one(3), read, &mut actions, &mut Vec::new()), Span::one(3));
        assert_eq!(actions.len(), 2);
    }
}
