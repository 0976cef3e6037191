//! One object in a real cache, mapped by this process with a real userfaultfd, over a simulated disk.

use commonhold_host::asker::Asker;
use commonhold_host::cache::book::Book;
use commonhold_host::cache::view::Mapping;
use commonhold_host::cache::{Cache, Evictor, Traits, stored};
use commonhold_host::faults::service::FaultService;
use commonhold_host::faults::space::{AddressSpace, Shown};
use commonhold_host::live::{INTENT_PAGES, Live};
use commonhold_host::machine::Machine;
use commonhold_host::pagers::Pager;
use commonhold_host::spill::Spill;
use commonhold_journal::testing::{Crash, PowerLoss, Rng, SimDisk, SimFile};
use commonhold_journal::{Options, Storage};
use commonhold_object::error::Doing;
use commonhold_object::{
    MapFlags, MappingId, ObjectId, PageRange, Protection, Region, Result, SessionId, Sharing, SyncMode,
    pages_of,
};
use commonhold_sys::memory::{self, Wish};
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Modes, Userfaultfd};
use commonhold_sys::{frames, process};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

pub const PAGE: usize = 4096;
/// The files on the disk.
pub const A: usize = 0;
pub const B: usize = 1;
pub const OBJECT: usize = 2;

const ID: ObjectId = ObjectId(7);
const UUID: u128 = 0x0123_4567_89ab_cdef;
pub const OPTIONS: Options =
    Options { reserve_bytes: 64 << 10, grow_bytes: 16 << 10, checkpoint_bytes: 1 << 30, salt: Some(42) };

/// Something to be done in the middle of a flush.
type Hook = Box<dyn FnOnce() + Send>;

/// A pager over a file of the simulated disk.
#[derive(Clone)]
pub struct SimPager {
    file: SimFile,
    size_bytes: u64,
    /// Done once, when the stored object is flushed the next time.
    on_flush: Arc<Mutex<Option<Hook>>>,
}

impl SimPager {
    pub fn new(disk: &SimDisk, size_bytes: u64) -> SimPager {
        SimPager { file: disk.file(OBJECT), size_bytes, on_flush: Arc::default() }
    }

    fn within(&self, offset: u64, length: usize) -> usize {
        self.size_bytes.saturating_sub(offset).min(length as u64) as usize
    }
}

impl Pager for SimPager {
    fn page_in(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let there = self.within(offset, buffer.len());
        buffer.fill(0);
        self.file.read_at(offset, &mut buffer[..there]).doing("reading the object")
    }

    fn page_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        let there = self.within(offset, data.len());
        self.file.clone().write_at(offset, &data[..there]).doing("writing the object")
    }

    fn flush(&self) -> Result<()> {
        let hook = self.on_flush.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        self.file.clone().flush().doing("flushing the object")
    }
}

/// A page whose every word tells which round wrote it where.
pub fn page(round: u64, number: u64) -> Vec<u8> {
    (0..PAGE as u64 / 8).flat_map(|word| (round << 32 | number << 16 | word).to_le_bytes()).collect()
}

pub struct Rig {
    pub disk: SimDisk,
    pub pager: SimPager,
    pub cache: Arc<Cache>,
    pub size_bytes: u64,
    base: NonNull<u8>,
    /// What the mapping shows.
    pub memory: Vec<u8>,
    /// `states[k]` is what attempt `k` would have stored.
    pub states: Vec<Vec<u8>>,
    pub acknowledged: usize,
    _directory: TempDir,
}

/// What an object is like.
#[derive(Clone, Copy)]
pub struct Shape {
    pub size_bytes: u64,
    pub sync: SyncMode,
    /// Most frames in memory.
    pub limit_pages: u64,
    /// Pages of a part of a journal record.
    pub part_pages: usize,
    pub options: Options,
}

impl Default for Shape {
    fn default() -> Self {
        let (sync, options) = (SyncMode::Atomic, OPTIONS);
        Shape { size_bytes: 6 * PAGE as u64 - 100, sync, limit_pages: 1 << 20, part_pages: 100, options }
    }
}

/// A disk on which nothing but a zeroed object is yet.
pub fn new_disk(size_bytes: u64) -> SimDisk {
    SimDisk::new(vec![Vec::new(), Vec::new(), vec![0; size_bytes as usize]])
}

impl Rig {
    pub fn new(shape: Shape) -> Rig {
        let disk = new_disk(shape.size_bytes);
        Rig::on(&disk, shape).expect("nothing fails yet")
    }

    /// Starts a host on what the disk holds: opens the journal, redoes it, and maps the object.
    pub fn on(disk: &SimDisk, shape: Shape) -> Result<Rig> {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        let size_bytes = shape.size_bytes;
        let frames = Arc::new(frames::create("rig", pages_of(size_bytes) * PAGE as u64).unwrap());
        let inode = std::fs::File::from(frames.try_clone().unwrap()).metadata().unwrap().ino();
        let live = Live::create(&directory.path().join("live"), &machine.boot_id, inode, size_bytes)?;
        let traits = Traits {
            home_moves: false,
            uid: 0,
            sync: shape.sync,
            freezable: false,
            space_reserved: true,
            fault_deadline_ms: None,
            limit_pages: shape.limit_pages,
        };
        let pager = SimPager::new(disk, size_bytes);
        let spill = Spill::new(&directory.path().join("spill"));
        let cache = Cache::new(
            machine.clone(),
            ID,
            UUID,
            traits,
            size_bytes,
            frames.clone(),
            Box::new(pager.clone()),
            Book::new(live),
            spill,
        );
        machine.add(&cache);
        if shape.sync == SyncMode::Atomic {
            cache.use_journal(storages(disk), shape.options, shape.part_pages)?;
        }
        let base = map(&machine, &cache, &frames);
        let memory = disk.contents(OBJECT);
        let states = vec![memory.clone()];
        Ok(Rig {
            disk: disk.clone(),
            pager,
            cache,
            size_bytes,
            base,
            memory,
            states,
            acknowledged: 0,
            _directory: directory,
        })
    }

    /// Writes pages through the mapping, as a program does.
    pub fn write(&mut self, pages: &[u64]) {
        let round = self.states.len() as u64;
        for number in pages {
            let (at, bytes) = (*number as usize * PAGE, page(round, *number));
            let length = PAGE.min(self.size_bytes as usize - at);
            // SAFETY: the page lies in the mapping, which is as long as the object and never ends; no reference to
            // its memory exists.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), PAGE) };
            self.memory[at..at + length].copy_from_slice(&bytes[..length]);
        }
    }

    /// Writes more pages than memory holds: evictions store some of them before the next sync.
    pub fn write_more_than_fits(&mut self, pages: &[u64]) {
        self.disk.attempted(self.states.len() as u64);
        self.write(pages);
    }

    /// What the mapping shows.
    pub fn shown(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len()];
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    /// Syncs everything. Notes for the crashes to come what was attempted and what was acknowledged.
    pub fn sync(&mut self) -> Result<u64> {
        let whole = PageRange::new(0, pages_of(self.size_bytes));
        let state = self.memory.clone();
        self.sync_range(whole, state)
    }

    /// Syncs a part, which must make the stored object `state`.
    pub fn sync_range(&mut self, range: PageRange, state: Vec<u8>) -> Result<u64> {
        let attempt = self.states.len() as u64;
        self.states.push(state);
        self.disk.attempted(attempt);
        let stored = self.cache.sync(range, false)?;
        self.disk.acknowledged(attempt);
        self.acknowledged = attempt as usize;
        Ok(stored)
    }

    /// Writes and syncs.
    pub fn store(&mut self, pages: &[u64]) {
        self.write(pages);
        let stored = self.sync().unwrap();
        assert!(stored >= pages.len() as u64, "{stored} of {pages:?}");
        assert!(self.disk.contents(OBJECT) == self.memory, "a plain read sees what was synced");
    }

    /// Does that in the middle of the next flush of the stored object.
    pub fn on_flush(&self, hook: impl FnOnce() + Send + 'static) {
        *self.pager.on_flush.lock().unwrap() = Some(Box::new(hook));
    }
}

fn storages(disk: &SimDisk) -> [stored::JournalStorage; 2] {
    [Box::new(disk.file(A)), Box::new(disk.file(B))]
}

fn machine(directory: &TempDir) -> Arc<Machine> {
    let (read, write) = frames::frame_pipe(INTENT_PAGES).unwrap();
    let evictor = Evictor::new([(None, [Arc::new(read), Arc::new(write)])], Box::new(|_, _| Ok(())));
    let refuge =
        commonhold_host::refuge::Refuge::new(Arc::new(commonhold_host::refuge::new_memory().unwrap()));
    let on_way =
        commonhold_host::on_way::OnWay::open(Arc::new(commonhold_host::on_way::new_memory().unwrap()))
            .unwrap();
    Machine::new(directory.path(), process::boot_id().unwrap(), 1 << 20, evictor, refuge, on_way).unwrap()
}

/// Maps the object in this process, which is its own client. The mapping is never ended.
fn map(machine: &Arc<Machine>, cache: &Arc<Cache>, frames: &OwnedFd) -> NonNull<u8> {
    let length = (pages_of(cache.size_bytes()) as usize) * PAGE;
    let wish = Wish {
        hint: std::ptr::null_mut(),
        fixed: false,
        write: true,
        private: false,
        not_inherited: true,
        controlled: true,
    };
    let base = memory::map(frames, 0, length, wish).unwrap();
    let device = Userfaultfd::open_device().ok();
    let (uffd, _) = Userfaultfd::create(Kind::Asynchronous, device.as_ref().map(AsFd::as_fd)).unwrap();
    let modes = Modes { missing: true, minor: true, write_protect: true };
    let address = base.as_ptr() as u64;
    uffd.register(address, length as u64, modes).unwrap();
    let uffd = Arc::new(uffd);
    let mapping = Arc::new(Mapping {
        id: MappingId(1),
        session: SessionId(1),
        pid: std::process::id(),
        uid: 0,
        asker: Asker::new(0),
        base: address,
        protection: Protection::ReadWrite,
        sharing: Sharing::Shared,
        flags: MapFlags::default(),
        kind: Kind::Asynchronous,
        uffd: uffd.clone(),
        pagemap: Arc::new(Pagemap::of_self().unwrap()),
        claims: None,
        claims_first: 0,
        faults: AtomicU64::new(0),
        stream: Mutex::default(),
        gate: Default::default(),
        foreign: Default::default(),
    });
    cache.add_view(mapping.clone(), PageRange::new(0, pages_of(cache.size_bytes())));
    let space = Arc::new(AddressSpace::default());
    let value = Shown { cache: cache.clone(), mapping };
    let region = Region { address, length: length as u64, offset: 0, value };
    space.map.write().unwrap().insert(region).unwrap();
    FaultService::new(1, machine).add(space, uffd, 0).unwrap();
    base
}

/// Recovers from every state that a power cut could have left, and lets `check` look at the stored object.
/// Now and then the power is cut again during the recovery: that must end in the same state.
pub fn cut_everywhere(rig: &Rig, power: &PowerLoss, mut check: impl FnMut(&Crash, &[u8])) {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine(&directory);
    let mut rng = Rng::new(power.seed);
    let count = power.run(&rig.disk.recording(), |crash| {
        let disk = SimDisk::new(crash.files.clone());
        recover(&machine, &disk, rig.size_bytes).unwrap_or_else(|error| panic!("{}: {error}", place(&crash)));
        let recovered = disk.contents(OBJECT);
        check(&crash, &recovered);
        if rng.one_in(300) {
            cut_again(&machine, &disk, &recovered, rig.size_bytes, &place(&crash), rng.next_u64());
        }
    });
    println!("{count} states");
    assert!(count > 200, "only {count} states");
}

fn cut_again(machine: &Machine, disk: &SimDisk, expected: &[u8], size: u64, place: &str, seed: u64) {
    let power = PowerLoss { exhaustive_writes: 4, samples: 4, torn_samples: 1, seed };
    power.run(&disk.recording(), |again| {
        let disk = SimDisk::new(again.files);
        recover(machine, &disk, size)
            .unwrap_or_else(|error| panic!("{place}, then {}: {error}", again.event));
        assert!(disk.contents(OBJECT) == expected, "{place}, and again at event {}", again.event);
    });
}

/// What a host does with the object before anybody reads it.
pub fn recover(machine: &Machine, disk: &SimDisk, size_bytes: u64) -> Result<()> {
    let pager = SimPager::new(disk, size_bytes);
    stored::recover(machine, ID, UUID, size_bytes, &pager, storages(disk), OPTIONS).map(drop)
}

pub fn place(crash: &Crash) -> String {
    let Crash { event, kept, acknowledged, attempted, .. } = crash;
    format!("event {event}, {kept}, acknowledged {acknowledged}, attempted {attempted}")
}
