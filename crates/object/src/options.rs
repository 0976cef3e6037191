//! What is chosen when an object is created.

use crate::coherence::{Coherence, OnLoss};
use crate::{Error, Fixed, PageSize, Result, limits};
use commonhold_tags::Types;
use serde::{Deserialize, Serialize};

/// The description of channels.
pub const CHANNEL_DESCRIPTION: &str = "channel";
/// The description of a heap.
pub const HEAP_DESCRIPTION: &str = "heap";

/// Where an object's pages come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PagerKind {
    /// Nowhere: zero until written, kept in memory (and in the host's spill file under a budget).
    Anonymous,
    /// A file, in place. Its descriptor travels with the request.
    File,
    /// A user's process that serves `pager` (see `Host::serve_pager`).
    External {
        /// The name under which that process serves.
        pager: String,
    },
}

/// What `sync` promises (Shirriff, section 6, msync; `atomic` goes past it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncMode {
    /// msync and fsync; the kernel may also write at any time before.
    Plain,
    /// Pages reach the pager only by sync, unlock, eviction or the last unmap.
    Ordered,
    /// The stored object changes only by sync, and by each sync wholly or not at all.
    Atomic,
}

/// How an address reaches a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Translation {
    /// By page tables of each process's own.
    #[default]
    Paged,
    /// By page tables that all processes share (Ko & Yoo): of huge pages, all of which are there from its creation on.
    SharedTables,
    /// The same of pages of 4 KiB, by the kernel module segshm.
    SharedTables4K,
    /// By pages that are there when it is mapped, so that no fault ever happens (Bernadat & Black): a place in an arena.
    Wired,
}

impl PagerKind {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            PagerKind::Anonymous => "anonymous",
            PagerKind::File => "file",
            PagerKind::External { .. } => "external",
        }
    }
}

impl SyncMode {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            SyncMode::Plain => "plain",
            SyncMode::Ordered => "ordered",
            SyncMode::Atomic => "atomic",
        }
    }
}

impl Translation {
    /// All of them.
    pub const ALL: [Translation; 4] =
        [Translation::Paged, Translation::SharedTables, Translation::SharedTables4K, Translation::Wired];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Translation::Paged => "paged",
            Translation::SharedTables => "shared-tables",
            Translation::SharedTables4K => "shared-tables-4k",
            Translation::Wired => "wired",
        }
    }

    /// The one that a word is for.
    pub fn of_word(word: &str) -> Option<Translation> {
        Translation::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// What becomes of unsynced pages when the last process that mapped the object was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLastDeath {
    /// They stay in memory for the next mapper, who may keep them or call `revert`.
    Keep,
    /// They are dropped at once: the object is again what was last synced.
    Revert,
}

/// How to create an object. `Default` gives an empty anonymous plain object that its owner may read and write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOptions {
    /// Size in bytes; 0 with a file pager means the size of the file.
    pub size_bytes: u64,
    /// Where pages come from.
    pub pager: PagerKind,
    /// What sync promises.
    pub sync: SyncMode,
    /// Fault service even where plain mapping would do: for page-holding locks on a plain object.
    pub controlled: bool,
    /// Synchronous write protection, so that `sync(freeze)` gives a true instant. Implies controlled.
    pub freezable: bool,
    /// Take memory (or spill space) at creation. None: yes for anonymous objects, no for others.
    pub reserve: Option<bool>,
    /// What becomes of unsynced pages after a killed last mapper.
    pub on_last_death: OnLastDeath,
    /// Most bytes of memory its frames may take. Implies controlled. None: the host's budget alone.
    pub budget_bytes: Option<u64>,
    /// SIGBUS after this long in a fault. None: [`limits::SHARED_FAULT_DEADLINE_MS`] if hosts share the object; else a fault
    /// waits as long as the keeper lives.
    pub fault_deadline_ms: Option<u32>,
    /// How long an external pager may take to answer. None: 30 s.
    pub pager_deadline_ms: Option<u32>,
    /// Mode bits.
    pub mode: u32,
    /// What is in it, for programs that check it when they open (for example NumPy's `<u4`), in at most
    /// [`limits::DESCRIPTION_BYTES`]; empty: bytes. It is apart from the tags of its pages (`types`).
    pub description: String,
    /// Who sees a write, and when.
    pub coherence: Coherence,
    /// In pages of which size a strict object is scheduled.
    pub page_size: PageSize,
    /// On how many further hosts a version is kept before another host gets it: losing as many hosts loses nothing that
    /// another host has read. For strict objects that are scheduled by forwarding, or whose home moves.
    pub replicas: u32,
    /// Another host becomes the object's home when its home is lost. For objects with replicas, or on a file that those
    /// hosts can open by the same path, in a cluster whose registry is etcd.
    pub home_moves: bool,
    /// How an address reaches its pages. With shared page tables its size is rounded up to a multiple of 2 MiB, for life.
    pub translation: Translation,
    /// Nobody writes to it: a snapshot. No object is created so.
    pub read_only: bool,
    /// It has one address in all processes of all hosts, which it is given when it is created (`docs/FIXED.md`).
    pub fixed: Option<Fixed>,
    /// What is in its pages, for machines of other formats (`docs/TYPES.md`). No object is created with any.
    pub types: Types,
    /// Its name, and with it the object, goes so many milliseconds after its last user: closed, ended or killed. None: it stays.
    pub ephemeral_ms: Option<u32>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            size_bytes: 0,
            pager: PagerKind::Anonymous,
            sync: SyncMode::Plain,
            controlled: false,
            freezable: false,
            reserve: None,
            on_last_death: OnLastDeath::Keep,
            budget_bytes: None,
            fault_deadline_ms: None,
            pager_deadline_ms: None,
            mode: 0o600,
            description: String::new(),
            coherence: Coherence::Local,
            page_size: PageSize::SMALLEST,
            replicas: 0,
            home_moves: false,
            translation: Translation::Paged,
            read_only: false,
            fixed: None,
            types: Types::default(),
            ephemeral_ms: None,
        }
    }
}

impl CreateOptions {
    /// Those of a snapshot of an object with these options.
    pub fn snapshot(&self, size_bytes: u64, mode: u32, writable: bool) -> CreateOptions {
        CreateOptions {
            size_bytes,
            controlled: true,
            freezable: writable,
            read_only: !writable,
            reserve: Some(false),
            mode,
            description: self.description.clone(),
            ..CreateOptions::default()
        }
    }

    /// Whether faults of such an object are served by the host (DESIGN.md, "the cheapest mechanism").
    pub fn is_controlled(&self) -> bool {
        self.controlled
            || self.freezable
            || self.sync != SyncMode::Plain
            || self.budget_bytes.is_some()
            || self.is_shared()
            || (matches!(self.pager, PagerKind::External { .. }) && !self.is_wired())
    }

    /// Whether all processes share its page tables.
    pub fn shares_tables(&self) -> bool {
        matches!(self.translation, Translation::SharedTables | Translation::SharedTables4K)
    }

    /// Whether no fault happens in it.
    pub fn is_wired(&self) -> bool {
        self.translation == Translation::Wired
    }

    /// Whether it is wired, and all of its pages are fetched from its pager before anybody gets it.
    pub fn is_fetched(&self) -> bool {
        self.is_wired() && self.pager != PagerKind::Anonymous
    }

    /// Whether it is a channel (`docs/MESSAGES.md`): whoever maps it relies on its size.
    pub fn is_channel(&self) -> bool {
        let translation = matches!(self.translation, Translation::Paged | Translation::Wired);
        self.description == CHANNEL_DESCRIPTION
            && self.pager == PagerKind::Anonymous
            && !self.is_controlled()
            && translation
    }

    /// Whether it is a heap (`docs/HEAP.md`): whoever maps it relies on its size.
    pub fn is_heap(&self) -> bool {
        self.description == HEAP_DESCRIPTION
            && self.pager == PagerKind::Anonymous
            && self.translation == Translation::Paged
    }

    /// Whether it is of huge pages.
    pub fn is_of_huge_pages(&self) -> bool {
        self.translation == Translation::SharedTables
    }

    /// Makes it strict, by the scheduler that suits what else was asked for: all hosts that have it, unless one host has to
    /// see everything, for a true instant, or another home may follow, which by the central scheduler needs no common file.
    pub fn strict(self, on_loss: OnLoss) -> CreateOptions {
        let needs_one = self.freezable || self.home_moves;
        let coherence = if needs_one { Coherence::central(on_loss) } else { Coherence::strict(on_loss) };
        CreateOptions { coherence, ..self }
    }

    /// Whether processes of other hosts may map it.
    pub fn is_shared(&self) -> bool {
        self.coherence != Coherence::Local
    }

    /// After how long in a fault there is SIGBUS, if ever.
    pub fn fault_deadline(&self) -> Option<u32> {
        self.fault_deadline_ms.or(self.is_shared().then_some(limits::SHARED_FAULT_DEADLINE_MS))
    }

    /// Whether each first write waits for the host, so that it can be refused or put off.
    pub fn stops_writers(&self) -> bool {
        self.freezable || self.is_shared()
    }

    /// Whether memory or spill space is taken at creation.
    pub fn reserves(&self) -> bool {
        self.reserve.unwrap_or(self.pager == PagerKind::Anonymous)
    }

    /// Refuses what cannot be honoured, with the reason.
    pub fn check(&self) -> Result<()> {
        self.check_numbers()?;
        self.check_own_space()?;
        if !self.is_controlled() {
            self.check_direct()?;
        }
        self.check_instant()?;
        self.check_hold()?;
        self.check_page_size()?;
        self.check_replicas()?;
        self.check_home_moves()?;
        self.check_translation()?;
        self.check_fixed()?;
        if self.ephemeral_ms.is_some() && self.home_moves {
            return Err(Error::invalid(
                "an ephemeral object goes with its last user, and one whose home moves is kept for whoever comes: leave one out",
            ));
        }
        if self.is_shared() && matches!(self.pager, PagerKind::External { .. }) {
            return Err(Error::invalid(
                "an object that hosts share takes its pages from memory or from a file: leave the external pager out, or \
                 create it local",
            ));
        }
        Ok(())
    }

    /// Sizes, bits and times that no object may have.
    fn check_numbers(&self) -> Result<()> {
        let refused = |text: String| Err(Error::invalid(text));
        let may_be_empty = !self.reserves()
            && self.translation == Translation::Paged
            && !matches!(self.pager, PagerKind::External { .. });
        if self.size_bytes == 0 && self.pager != PagerKind::File && !may_be_empty {
            return refused("the size is zero: give --size, or --file with a file that is not empty".into());
        }
        if self.size_bytes > limits::OBJECT_BYTES {
            let (size, most) = (self.size_bytes, limits::OBJECT_BYTES);
            return refused(format!("size {size} is past the limit of {most} bytes for one object"));
        }
        if self.description.len() > limits::DESCRIPTION_BYTES {
            let (bytes, most) = (self.description.len(), limits::DESCRIPTION_BYTES);
            return refused(format!("the description has {bytes} bytes: the limit is {most}"));
        }
        if self.mode & !0o777 != 0 {
            return refused(format!("mode {:o} has bits beyond rwxrwxrwx", self.mode));
        }
        if let Some(budget) = self.budget_bytes.filter(|b| *b < limits::BUDGET_BYTES_MIN) {
            let least = limits::BUDGET_BYTES_MIN;
            return refused(format!("a memory budget of {budget} bytes is too small: the least is {least}"));
        }
        if self.fault_deadline_ms == Some(0) || self.pager_deadline_ms == Some(0) {
            return refused("a deadline of 0 ms would fail every access: leave it out for none".into());
        }
        if let Some(deadline) = self.pager_deadline_ms.filter(|ms| *ms > limits::PAGER_DEADLINE_MS) {
            let most = limits::PAGER_DEADLINE_MS;
            return refused(format!(
                "a pager deadline of {deadline} ms is too long: the most is {most} ms, an hour"
            ));
        }
        Ok(())
    }

    /// What an external pager is called, and that nobody takes space for it.
    fn check_own_space(&self) -> Result<()> {
        let PagerKind::External { pager } = &self.pager else { return Ok(()) };
        crate::Name::new(pager)?;
        if self.reserve == Some(true) {
            return Err(Error::invalid(
                "an external pager keeps its own space: reserve = yes cannot be honoured",
            ));
        }
        Ok(())
    }

    /// Who is to be stopped for a true instant must be seen by somebody.
    fn check_instant(&self) -> Result<()> {
        if self.freezable && self.coherence.is_forwarded() {
            return Err(Error::invalid(
                "an object whose scheduler is forwarding has no true instant, for nobody sees all its writers: leave \
                 freezable out, or use the central scheduler",
            ));
        }
        Ok(())
    }

    /// A page is to come, stay for its minimum hold, and be asked for again before whoever waits for it is given up.
    fn check_hold(&self) -> Result<()> {
        let (Coherence::Strict { hold_us, .. }, Some(deadline_ms)) = (self.coherence, self.fault_deadline())
        else {
            return Ok(());
        };
        if u64::from(hold_us) * 2 > u64::from(deadline_ms) * 1000 {
            return Err(Error::invalid(format!(
                "a minimum hold of {hold_us} us is more than half of the fault deadline of {deadline_ms} ms: who waits for a \
                 page would get SIGBUS; make it {} us at most, or the deadline longer",
                u64::from(deadline_ms) * 500
            )));
        }
        Ok(())
    }

    /// In which pages it is scheduled, and that two of them have room.
    fn check_page_size(&self) -> Result<()> {
        let page = self.page_size;
        if page != PageSize::SMALLEST && !self.coherence.is_strict() {
            return Err(Error::invalid(format!(
                "a page size of {page} is for strict objects, whose pages go from host to host: leave it out, or make the \
                 object strict"
            )));
        }
        let least = 2 * page.bytes();
        if let Some(budget) = self.budget_bytes.filter(|budget| *budget < least) {
            return Err(Error::invalid(format!(
                "a memory budget of {budget} bytes holds less than two pages of {page}: give at least {least}, or a smaller \
                 page size"
            )));
        }
        Ok(())
    }

    /// Whether other hosts keep what the home has stored, so that its role can move to one of them without a common file.
    pub fn is_replicated(&self) -> bool {
        self.home_moves && self.replicas > 0 && !self.coherence.is_forwarded()
    }

    /// The central scheduler's home has whatever anybody else has read: others keep it only so that one of them can become
    /// the home. Explicit and local objects have no newest version.
    fn check_replicas(&self) -> Result<()> {
        let may_have = self.coherence.is_forwarded() || (self.coherence.is_strict() && self.home_moves);
        if self.replicas > 0 && !may_have {
            return Err(Error::invalid(format!(
                "{} replicas are for strict objects that are scheduled by forwarding, or whose home moves: create it so \
                 (scheduler = forwarding, or home_moves), or leave them out",
                self.replicas
            )));
        }
        if self.replicas > limits::REPLICAS {
            return Err(Error::invalid(format!(
                "{} replicas are too many: the most are {}",
                self.replicas,
                limits::REPLICAS
            )));
        }
        Ok(())
    }

    /// A home moves only where the next one finds everything that the last one had stored.
    fn check_home_moves(&self) -> Result<()> {
        let refused = |what: &str| Err(Error::invalid(format!("home_moves: {what}")));
        if !self.home_moves {
            return Ok(());
        }
        if !self.is_shared() {
            return refused("only objects that hosts share have homes that move: make it strict or explicit");
        }
        if matches!(self.pager, PagerKind::External { .. }) {
            return refused("nobody fences an external pager that two hosts could start: leave it out");
        }
        if self.coherence.is_forwarded() && self.pager != PagerKind::File {
            return refused(
                "of a forwarded object the next home reads what was stored from a file that both can open: give --file, or use \
                 the central scheduler",
            );
        }
        if self.pager != PagerKind::File && !self.is_replicated() {
            return refused(
                "the next home reads what was stored from a file that both can open, or from a replica: give --file, or of a \
                 strict object --replicas",
            );
        }
        if self.sync == SyncMode::Atomic {
            return refused("the journal of sync = atomic stays with its host: use ordered");
        }
        Ok(())
    }

    /// Page tables are shared of memory whose pages all stay: nobody can be told of a write, and none can be taken back.
    fn check_translation(&self) -> Result<()> {
        if self.translation == Translation::Paged {
            return Ok(());
        }
        let what = if self.pager != PagerKind::Anonymous && !self.is_wired() {
            "a file or an external pager"
        } else if self.is_shared() {
            "another coherence than local"
        } else if self.is_controlled() {
            "what needs its faults to be served (controlled, freezable, sync, a budget)"
        } else if self.reserve == Some(false) && self.pager == PagerKind::Anonymous {
            "reserve = no"
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "translation = {} is for memory that is all there from the beginning, and {what} does not go with that: leave one \
             of the two out",
            self.translation.word()
        )))
    }

    /// One address is for memory that each process maps for itself, by tables of its own, at an address that is its own.
    fn check_fixed(&self) -> Result<()> {
        let Some(fixed) = self.fixed else { return Ok(()) };
        let refused = |what: String| Err(Error::invalid(format!("fixed: {what}")));
        if self.translation != Translation::Paged {
            let (word, why) = match self.translation {
                Translation::Wired => ("wired", "lies where its arena is mapped"),
                other => (other.word(), "lies where its page tables reach"),
            };
            return refused(format!("an object with translation = {word} {why}: leave one of the two out"));
        }
        if self.home_moves {
            return refused(
                "the addresses are the home's, and one that is lost keeps them: leave home_moves out".into(),
            );
        }
        if self.is_channel() {
            return refused("whoever uses a channel has it mapped anywhere, by offsets: leave it out".into());
        }
        fixed.check_room(self.size_bytes)
    }

    /// The host serves no fault of a direct object and keeps none of its pages back: what would need that is refused.
    fn check_direct(&self) -> Result<()> {
        let what = if self.fault_deadline_ms.is_some() {
            "a fault deadline"
        } else if self.on_last_death == OnLastDeath::Revert {
            "on_last_death = revert"
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "{what} is for controlled objects, and nothing else here asks for one: make it controlled, or sync = \
             ordered or atomic, or leave it out"
        )))
    }
}

#[cfg(test)]
mod tests;
