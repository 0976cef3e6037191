//! One shared object at this host: events go to its scheduler, one at a time, and what that wants done is done before the
//! next.

use super::{Carrier, Holds};
use crate::cache::Cache;
use crate::cache::coherent::PageBytes;
use commonhold_coherence::central::{self, Message, Node};
use commonhold_coherence::{Access, Action, Carried, Event, HostId, Scheduler, Span, Why};
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result, pages_of};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Pages of one request: twice what any host asks for.
const MOST_PAGES: u32 = 1024;
const PAGE: usize = PAGE_SIZE_BYTES as usize;

/// How an object is shared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its identity in the cluster.
    pub object: u128,
    /// This host.
    pub me: HostId,
    /// Whether this host keeps its saved copies and schedules it.
    pub is_home: bool,
    /// How.
    pub options: central::Options,
    /// A page that was granted stays this long, so that the instruction that faulted retires.
    pub hold: Duration,
}

/// One object.
pub struct Driver {
    plan: Plan,
    carrier: Arc<dyn Carrier>,
    holds: Arc<Holds>,
    state: Mutex<State>,
    cache: Weak<Cache>,
}

/// Who schedules, and this host's part of it.
struct State {
    /// None while it is not known: whoever touches a page waits.
    home: Option<HostId>,
    node: Node,
}

/// What one event brought with it, and what the actions so far took out of the page tables.
#[derive(Default)]
struct Hand {
    /// Bytes that came with the message, from the next page on.
    came: VecDeque<u8>,
    /// Bytes of pages that were taken from processes of this host.
    taken: HashMap<u32, PageBytes>,
}

fn node(plan: &Plan, home: HostId) -> Node {
    Node::new(plan.me, home, plan.options, !plan.hold.is_zero())
}

fn range(span: Span) -> PageRange {
    PageRange::new(span.first.into(), span.count.into())
}

impl Driver {
    /// The driver of an object whose cache is `cache`. Its home is to be said, unless it is this host.
    pub fn start(
        plan: Plan,
        carrier: Arc<dyn Carrier>,
        holds: Arc<Holds>,
        cache: &Arc<Cache>,
    ) -> Arc<Driver> {
        let home = plan.is_home.then_some(plan.me);
        let state = State { home, node: node(&plan, plan.me) };
        let driver = Driver { plan, carrier, holds, state: state.into(), cache: Arc::downgrade(cache) };
        let driver = Arc::new(driver);
        cache.share(&driver);
        driver
    }

    /// Whether this host keeps its saved copies.
    pub fn is_home(&self) -> bool {
        self.plan.is_home
    }

    /// How it is shared.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A process of this host touched pages without the right to.
    pub fn fault(self: &Arc<Self>, pages: PageRange, access: Access) {
        let span = Span::new(pages.first as u32, pages.count as u32);
        self.happened(Event::Fault { span, access }, Vec::new());
    }

    /// Memory is short here.
    pub fn evict(self: &Arc<Self>, page: u32) {
        self.happened(Event::Evict { page }, Vec::new());
    }

    /// A page's minimum hold is over.
    pub(super) fn hold_over(self: &Arc<Self>, page: u32) {
        self.happened(Event::HoldOver { page }, Vec::new());
    }

    /// A message came from another host, with these bytes.
    pub fn message(self: &Arc<Self>, from: HostId, message: Message, bytes: Vec<u8>) -> Result<()> {
        self.check_pages(&message)?;
        let pages = Node::carries(&message).pages();
        if bytes.len() != pages.len() * PAGE {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("{from} sent {} bytes with a message of {} pages", bytes.len(), pages.len()),
            ));
        }
        self.happened(Event::Message { from, message }, bytes);
        Ok(())
    }

    /// At the home: pages that the host before had lent. Nobody knows to whom.
    pub fn were_lent(&self, pages: &roaring::RoaringBitmap) {
        self.state().node.were_lost(pages.iter());
    }

    /// At the home: pages whose newest version is lost serve again, from the version before. Gives how many they were.
    pub fn revert(&self) -> u64 {
        let Some(cache) = self.cache.upgrade() else { return 0 };
        let reverted = self.state().node.revert();
        reverted.iter().for_each(|page| cache.returned(PageRange::new((*page).into(), 1)));
        reverted.len() as u64
    }

    /// The home, if it is known.
    pub fn home(&self) -> Option<HostId> {
        self.state().home
    }

    /// The home is known (again). Whoever waited asks it.
    pub fn found_home(&self, home: HostId) {
        let mut state = self.state();
        *state = State { home: Some(home), node: node(&self.plan, home) };
        drop(state);
        if let Some(cache) = self.cache.upgrade() {
            cache.ask_again();
        }
    }

    /// The home cannot be found: whoever waits learns it.
    pub fn home_is_away(&self) {
        if let Some(cache) = self.cache.upgrade()
            && self.home().is_none()
        {
            cache.cannot_be_had(PageRange::new(0, u64::from(u32::MAX)), &why_not(Why::HomeLost));
        }
    }

    /// A host is lost: nothing comes from it any more. Whether it was the home.
    pub fn lost(self: &Arc<Self>, host: HostId) -> bool {
        let mut state = self.state();
        if state.home != Some(host) {
            drop(state);
            self.happened(Event::Lost { host }, Vec::new());
            return false;
        }
        // Whatever is here may be old by the time the home is back, and what is newest here it cannot be told of.
        *state = State { home: None, node: node(&self.plan, host) };
        if let Some(cache) = self.cache.upgrade()
            && let Err(error) = cache.forget_all()
        {
            cache.report(&error);
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is said of pages that are not there, or of more than anybody asks for at once, is nothing an honest host says.
    fn check_pages(&self, message: &Message) -> Result<()> {
        let span = message.span();
        let size = self.cache.upgrade().map_or(0, |cache| pages_of(cache.size_bytes()));
        let end = u64::from(span.first) + u64::from(span.count);
        if span.count == 0 || span.count > MOST_PAGES || end > size {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("a message of pages {}..{end} of an object of {size}", span.first),
            ));
        }
        Ok(())
    }

    /// The only way into the scheduler. What it says to this very host is done at once, in order.
    fn happened(self: &Arc<Self>, event: Event<Message>, bytes: Vec<u8>) {
        let Some(cache) = self.cache.upgrade() else { return };
        let mut state = self.state();
        if state.home.is_none() {
            return; // asked again when it is known
        }
        let mut to_do = VecDeque::from([(event, bytes)]);
        let mut actions = Vec::new();
        while let Some((event, bytes)) = to_do.pop_front() {
            cache.seen.event(self.plan.me, &event);
            state.node.handle(event, &mut actions);
            let mut hand = Hand { came: bytes.into(), ..Hand::default() };
            for action in actions.drain(..) {
                cache.seen.action(self.plan.me, &action);
                if let Err(error) = self.act(&cache, action, &mut hand, &mut to_do) {
                    cache.report(&error);
                }
            }
        }
    }

    fn act(
        self: &Arc<Self>,
        cache: &Arc<Cache>,
        action: Action<Message>,
        hand: &mut Hand,
        to_do: &mut VecDeque<(Event<Message>, Vec<u8>)>,
    ) -> Result<()> {
        match action {
            // The home's frames are the saved copies: between its two parts no bytes need move.
            Action::Send { to, message } if to == self.plan.me => {
                to_do.push_back((Event::Message { from: to, message }, Vec::new()));
            }
            Action::Send { to, message } => {
                let bytes = match Node::carries(&message) {
                    Carried::Nothing => Vec::new(),
                    Carried::Saved(pages) => cache.content(pages.into_iter().map(u64::from))?,
                    Carried::Frames(pages) => hand.take(cache, &pages)?,
                };
                if let Message::Grant { span, access: Access::Write, .. } = &message {
                    cache.lend(range(*span))?; // the next host must know that it has not the newest
                }
                self.carrier.send(to, self.plan.object, &message, &bytes);
            }
            Action::Install { span, access, with_data } => {
                let bytes = (with_data && !self.is_home()).then(|| hand.next(span.count as usize));
                let installed = cache.install(range(span), access, bytes.as_deref());
                installed.inspect_err(|error| cache.cannot_be_had(range(span), error))?;
            }
            Action::Restrict { page, access } => {
                if let Some(bytes) = cache.restrict(page.into(), access)? {
                    hand.taken.insert(page, bytes);
                }
            }
            Action::Save { page } => {
                // From this host's own part: the bytes are in the frame already.
                let bytes = hand.next(1);
                if !bytes.is_empty() {
                    cache.save_copy(page.into(), &bytes)?;
                    cache.returned(PageRange::new(page.into(), 1));
                }
            }
            Action::Hold { page } => self.holds.say_at(Instant::now() + self.plan.hold, self, page),
            Action::Fail { page, why } => {
                cache.cannot_be_had(PageRange::new(page.into(), 1), &why_not(why));
            }
            Action::Keep | Action::TakeKept | Action::Synced { .. } | Action::SyncFailed { .. } => {} // of other schedulers
        }
        Ok(())
    }
}

impl Hand {
    fn next(&mut self, pages: usize) -> Vec<u8> {
        let end = (pages * PAGE).min(self.came.len());
        self.came.drain(..end).collect()
    }

    /// Of pages that were taken from the page tables, what was taken; of others, what the frames have.
    fn take(&mut self, cache: &Cache, pages: &[u32]) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(pages.len() * PAGE);
        for page in pages {
            match self.taken.remove(page) {
                Some(bytes) => all.extend_from_slice(&bytes[..]),
                None => all.extend(cache.content([u64::from(*page)])?),
            }
        }
        Ok(all)
    }
}

fn why_not(why: Why) -> Error {
    let text = match why {
        Why::NewestLost => {
            "its newest version was lost with a host: `commonhold revert` makes the version before it serve again"
        }
        Why::HomeLost => "the object's home cannot be reached",
    };
    Error::new(ErrorKind::Lost, text)
}
