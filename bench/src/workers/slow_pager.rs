//! `slow-pager`: an external pager that takes its time with each page.

use crate::failure::{Result, failed};
use crate::view::PAGE;
use crate::worker;
use commonhold::{Host, Pager};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Arguments: state directory, name under which it serves, microseconds for each page. To any line
/// it answers how many pages it brought and stored.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, delay] = arguments else { return failed("slow-pager takes three arguments") };
    let host = Host::connect_to(Path::new(state))?;
    let served = Arc::new([const { AtomicU64::new(0) }; 2]);
    let pager = SlowPager { delay: Duration::from_micros(delay.parse()?), served: served.clone() };
    let name = name.clone();
    std::thread::spawn(move || {
        let mut pager = pager;
        loop {
            // The host may be another meanwhile: that one is served next.
            let _ = host.serve_pager(&name, &mut pager);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        line?;
        let [read, written] = [0, 1].map(|n| served[n].load(Ordering::SeqCst));
        worker::say(&format!("{read} {written}"))?;
    }
    Ok(())
}

struct SlowPager {
    delay: Duration,
    served: Arc<[AtomicU64; 2]>,
}

impl SlowPager {
    fn take_time(&self, which: usize, bytes: usize) {
        let pages = bytes.div_ceil(PAGE) as u32;
        std::thread::sleep(self.delay * pages);
        self.served[which].fetch_add(u64::from(pages), Ordering::SeqCst);
    }
}

impl Pager for SlowPager {
    fn page_in(&mut self, _object: &str, _offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.take_time(0, buffer.len());
        buffer.fill(7);
        Ok(())
    }

    fn page_out(&mut self, _object: &str, _offset: u64, data: &[u8]) -> io::Result<()> {
        self.take_time(1, data.len());
        Ok(())
    }
}
