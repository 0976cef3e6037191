//! The network between the hosts of a row: each in a network namespace of its own where that is allowed, else ports
//! of the loopback device, which the row's detail then says.

use super::namespaces::Namespace;
use crate::failure::{Result, failed};
use crate::placement;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Where a host listens in its own namespace.
const PORT: u16 = 7420;

/// Places that reach each other, and nobody else.
#[derive(Debug)]
pub struct Network {
    /// Empty: all are on the loopback device.
    places: Vec<Namespace>,
    /// The bridge between more than two.
    switch: Option<Namespace>,
    why_loopback: Option<String>,
    /// Of each place; empty: they share what there is.
    processors: Vec<Vec<usize>>,
}

impl Network {
    /// A network of that many places.
    pub fn create(places: usize) -> Network {
        match namespaces(places) {
            Ok((places, switch)) => Network { places, switch, why_loopback: None, processors: Vec::new() },
            Err(error) => {
                let why_loopback = Some(error.to_string());
                Network { places: Vec::new(), switch: None, why_loopback, processors: Vec::new() }
            }
        }
    }

    /// From now on what is started at a place runs on processors of its own, if there are enough: two machines do not
    /// share one either.
    pub fn with_processors(mut self, places: usize) -> Result<Network> {
        self.processors = placement::shares(places)?;
        Ok(self)
    }

    /// The processors of a place; none: it has none of its own.
    pub fn processors(&self, place: usize) -> &[usize] {
        self.processors.get(place).map_or(&[], Vec::as_slice)
    }

    /// Does `work` at a place: sockets and processes that it makes stay there.
    pub fn at<T>(&self, place: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        placement::on(self.processors(place), || match self.places.get(place) {
            Some(namespace) => namespace.inside(work),
            None => work(),
        })
    }

    /// An address of that place at which the host listens.
    pub fn host_address(&self, place: usize) -> Result<SocketAddr> {
        if self.places.is_empty() {
            return self.free_address(place);
        }
        Ok((address(place), PORT).into())
    }

    /// An address of that place that nobody listens at.
    pub fn free_address(&self, place: usize) -> Result<SocketAddr> {
        let own = if self.places.is_empty() { Ipv4Addr::LOCALHOST } else { address(place) };
        self.at(place, || Ok(TcpListener::bind((own, 0))?.local_addr()?))
    }

    /// Bytes that came in at a place so far, with all headers. On the loopback device: at any place.
    pub fn received_bytes(&self, place: usize) -> Result<u64> {
        let device = if self.places.is_empty() { "lo:" } else { "eth0:" };
        let text = self.at(place, || Ok(std::fs::read_to_string("/proc/thread-self/net/dev")?))?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(device));
        match line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok()) {
            Some(bytes) => Ok(bytes),
            None => failed(format!("/proc/thread-self/net/dev has no {device}")),
        }
    }

    /// Whether places can be cut off.
    pub fn has_wires(&self) -> bool {
        !self.places.is_empty()
    }

    /// Cuts a place off from all others, or ends that.
    pub fn wire(&self, place: usize, up: bool) -> Result<()> {
        let Some(namespace) = self.places.get(place) else { return failed("the loopback device is not cut") };
        namespace.ip(&["link", "set", "eth0", if up { "up" } else { "down" }])
    }

    /// Holds everything back that is said between more than two places, or ends that: TCP says it again soon. Whether that
    /// can be done here.
    pub fn hold_back(&self, held: bool) -> Result<bool> {
        let Some(switch) = &self.switch else { return Ok(false) };
        switch.ip(&["link", "set", "bridge", if held { "down" } else { "up" }])?;
        Ok(true)
    }

    /// What it is, in words.
    pub fn words(&self) -> String {
        let apart = if self.processors.is_empty() { "" } else { ", each on processors of its own" };
        let network = match (&self.why_loopback, &self.switch) {
            (Some(why), _) => format!("ports of the loopback device, because: {why}"),
            (None, None) => "a network namespace each, joined by a veth pair".into(),
            (None, Some(_)) => "a network namespace each, joined by veth pairs and a bridge".to_owned(),
        };
        network + apart
    }
}

fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, place as u8 + 1)
}

fn namespaces(count: usize) -> Result<(Vec<Namespace>, Option<Namespace>)> {
    let places = (0..count).map(|_| Namespace::create()).collect::<Result<Vec<_>>>()?;
    let switch = if count == 2 {
        let other = places[1].path();
        places[0].ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &other])?;
        None
    } else {
        let switch = Namespace::create()?;
        switch.ip(&["link", "add", "bridge", "type", "bridge"])?;
        switch.ip(&["link", "set", "bridge", "up"])?;
        for (number, place) in places.iter().enumerate() {
            let (port, other) = (format!("port{number}"), switch.path());
            place.ip(&["link", "add", "eth0", "type", "veth", "peer", "name", &port, "netns", &other])?;
            switch.ip(&["link", "set", &port, "master", "bridge", "up"])?;
        }
        Some(switch)
    };
    for (number, place) in places.iter().enumerate() {
        place.ip(&["address", "add", &format!("{}/24", address(number)), "dev", "eth0"])?;
        place.ip(&["link", "set", "eth0", "up"])?;
    }
    Ok((places, switch))
}
