//! What a page from another host costs at least: 32 bytes there and a page back over one TCP connection between the
//! same places, and a fault that another process answers. Whoever waits sleeps.

use super::Network;
use crate::context::{Context, Random};
use crate::failure::{Doing, Result, failed};
use crate::faults::{BareService, FreshPages, Touch};
use crate::measure::median;
use crate::placement;
use crate::view::{PAGE, RawMapping};
use crate::worker::Worker;
use crate::workers::page_server::REQUEST;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Pages of one range of bare memory; when they are used up, a fresh one is made.
const PAGES: usize = 16_384;
/// First ones of each batch that do not count.
pub const WARM_UP: usize = 16;

/// Both parts of it.
pub struct Floor {
    socket: TcpStream,
    bare: BareService,
    memory: RawMapping,
    fresh: FreshPages,
    random: Random,
    /// Where this thread is while it measures.
    processors: Vec<usize>,
    _server: Worker,
}

/// Nanoseconds: medians of single round trips and faults.
#[derive(Clone, Copy, Debug)]
pub struct Least {
    /// 32 bytes there, 4 KiB back.
    pub round_trip: f64,
    /// A missing page, copied in by another process.
    pub fault: f64,
}

impl Least {
    /// One after the other.
    pub fn sum(self) -> f64 {
        self.round_trip + self.fault
    }
}

impl Floor {
    /// Between the first two places of a network.
    pub fn start(context: &Context, network: &Network) -> Result<Floor> {
        let address = network.free_address(0)?;
        let server = network.at(0, || Worker::start("page-server", &[address.to_string()]))?;
        let socket = network.at(1, || TcpStream::connect(address).doing("connecting to the page server"))?;
        socket.set_nodelay(true)?;
        let bare = network.at(1, BareService::start)?;
        let mut random = context.random(2);
        let (memory, fresh) = (bare.memory(PAGES)?, FreshPages::new(PAGES, &mut random));
        let processors = network.processors(1).to_vec();
        Ok(Floor { socket, bare, memory, fresh, random, processors, _server: server })
    }

    /// Medians of `count` of each, with a sleep before each where there is a gap.
    pub fn measure(&mut self, count: usize, gap: Option<Duration>) -> Result<Least> {
        let processors = self.processors.clone();
        placement::on(&processors, || self.measure_here(count, gap))
    }

    fn measure_here(&mut self, count: usize, gap: Option<Duration>) -> Result<Least> {
        let round_trips = self.round_trips(WARM_UP + count, gap)?;
        self.refresh(WARM_UP + count)?;
        let faults = self.fresh.touch(self.memory.view(), WARM_UP + count, Touch::Read, gap);
        Ok(Least { round_trip: median(&round_trips[WARM_UP..]), fault: median(&faults[WARM_UP..]) })
    }

    /// Median of `count` faults that the other process looks for all the time.
    pub fn fault_while_looking(&mut self, count: usize) -> Result<f64> {
        self.refresh(WARM_UP + count)?;
        let Floor { bare, fresh, memory, .. } = self;
        let faults = bare.spinning(|| fresh.touch(memory.view(), WARM_UP + count, Touch::Read, None));
        Ok(median(&faults[WARM_UP..]))
    }

    /// Seconds that `pages` round trips take, one after the other.
    pub fn transfer(&mut self, pages: usize) -> Result<f64> {
        Ok(self.round_trips(pages, None)?.iter().sum::<f64>() * 1e-9)
    }

    fn refresh(&mut self, count: usize) -> Result<()> {
        if self.fresh.left() < count {
            self.memory = self.bare.memory(PAGES)?;
            self.fresh = FreshPages::new(PAGES, &mut self.random);
        }
        Ok(())
    }

    fn round_trips(&mut self, count: usize, gap: Option<Duration>) -> Result<Vec<f64>> {
        let (request, mut page) = ([1; REQUEST], [0; PAGE]);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            if let Some(gap) = gap {
                std::thread::sleep(gap);
            }
            let before = Instant::now();
            self.socket.write_all(&request)?;
            self.socket.read_exact(&mut page)?;
            times.push(before.elapsed().as_nanos() as f64);
        }
        if page.iter().any(|byte| *byte != 7) {
            return failed("the page server sent something else");
        }
        Ok(times)
    }
}
