//! A load: blocks of 16 bytes to 4 KiB, log-uniform, that come and go at random.

use crate::context::{Context, Random};
use crate::failure::{Result, failed};
use commonhold::{CreateOptions, Heap, HeapArena, HeapType, Host};
use rand::RngExt;
use std::ffi::c_void;
use std::time::Instant;

/// What gives and takes blocks. 0 is none.
pub trait Allocator {
    /// A block of so many bytes, of which the first word was written.
    fn allocate(&mut self, bytes: u64) -> Result<u64>;
    /// Takes a block back.
    fn free(&mut self, block: u64) -> Result<()>;
}

/// A heap in an object, with an arena of this thread's own.
pub struct Ours {
    heap: Heap,
    arena: HeapArena,
    of: HeapType,
    /// Where the heap is mapped.
    start: *mut u8,
}

/// A heap of that name, which is made with 256 MiB if there is none.
pub fn ours(host: &Host, name: &str) -> Result<Ours> {
    let options = CreateOptions { size_bytes: 256 << 20, ..CreateOptions::default() };
    let heap = Heap::open_or_create(host, name, &options)?;
    let (arena, of) = (heap.arena()?, heap.type_of("bytes")?);
    let start = heap.address(0, 1)?;
    Ok(Ours { heap, arena, of, start })
}

impl Ours {
    /// The heap.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }
}

impl Allocator for Ours {
    #[inline]
    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let block = self.arena.allocate(self.of, bytes)?;
        // SAFETY: a block of at least 16 bytes in the heap, aligned to them, that is this program's.
        unsafe { self.start.add(block as usize).cast::<u64>().write_volatile(block) };
        Ok(block)
    }

    #[inline]
    fn free(&mut self, block: u64) -> Result<()> {
        Ok(self.arena.free(block)?)
    }
}

/// The peer: an allocator for one process.
pub struct Mimalloc;

impl Allocator for Mimalloc {
    #[inline]
    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        // SAFETY: any size may be asked for.
        let block: *mut u64 = unsafe { libmimalloc_sys::mi_malloc(bytes as usize) }.cast();
        if block.is_null() {
            return failed("mimalloc gives no memory");
        }
        // SAFETY: a block of at least 16 bytes, aligned to them, that is this program's.
        unsafe { block.write_volatile(bytes) };
        Ok(block as u64)
    }

    #[inline]
    fn free(&mut self, block: u64) -> Result<()> {
        // SAFETY: a block that `allocate` gave, or null, and that nobody uses any more.
        unsafe { libmimalloc_sys::mi_free(block as *mut c_void) };
        Ok(())
    }
}

/// What comes and goes: whose block is freed and made anew, and how large it is then.
pub struct Load {
    steps: Vec<(u32, u32)>,
    live: usize,
}

impl Load {
    /// A load with so many blocks at most.
    pub fn new(random: &mut Random, steps: usize, live: usize) -> Load {
        let step = |_| {
            let class = 1 << random.random_range(4..12);
            let bytes = class + random.random_range(0..=class);
            (random.random_range(0..live as u32), bytes)
        };
        Load { steps: (0..steps).map(step).collect(), live }
    }

    /// The load of a row.
    pub fn of(context: &Context) -> Load {
        Load::new(&mut context.random(1), context.pick(1 << 20, 1 << 15), 1024)
    }

    /// How many blocks it makes.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Bytes that its last blocks have.
    pub fn bytes_at_end(&self) -> u64 {
        let mut sizes = vec![0; self.live];
        self.steps.iter().for_each(|(place, bytes)| sizes[*place as usize] = u64::from(*bytes));
        sizes.iter().sum()
    }

    /// Seconds of all of it; `at_end` is called while the last blocks are there.
    pub fn run(&self, allocator: &mut impl Allocator, at_end: impl FnOnce()) -> Result<f64> {
        let mut blocks = vec![0_u64; self.live];
        let begun = Instant::now();
        for (place, bytes) in &self.steps {
            let block = &mut blocks[*place as usize];
            if *block != 0 {
                allocator.free(*block)?;
            }
            *block = allocator.allocate(u64::from(*bytes))?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        at_end();
        for block in blocks.into_iter().filter(|block| *block != 0) {
            allocator.free(block)?;
        }
        Ok(seconds)
    }
}
