//! Hosts in network name spaces of their own, joined by a switch, which can be cut off; nothing leaves the machine.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Name spaces, one for each host, with addresses 10.214.9.1 and following; they go at the end.
pub struct Network {
    name: String,
    count: usize,
}

impl Network {
    /// Makes one, or says why that cannot be done here.
    pub fn new(count: usize) -> Result<Network, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("network name spaces need root".into());
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let network = Network { name: format!("chs{}-{number}-", std::process::id()), count };
        let switch = network.switch();
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for host in 0..count {
            let space = network.space(host);
            ip(&format!("netns add {space}"))?;
            ip(&format!("-n {space} link add wire type veth peer name port{host} netns {switch}"))?;
            ip(&format!("-n {switch} link set port{host} master bridge up"))?;
            ip(&format!("-n {space} addr add {}/24 dev wire", address(host)))?;
            ip(&format!("-n {space} link set wire up"))?;
            ip(&format!("-n {space} link set lo up"))?;
        }
        Ok(network)
    }

    fn switch(&self) -> String {
        format!("{}switch", self.name)
    }

    fn space(&self, host: usize) -> String {
        format!("{}{host}", self.name)
    }

    /// Words before a program that is to run where that host is.
    pub fn before(&self, host: usize) -> Vec<String> {
        ["/usr/bin/env", "ip", "netns", "exec", &self.space(host)].map(str::to_owned).to_vec()
    }

    /// Where that host listens.
    pub fn listen(&self, host: usize) -> String {
        format!("{}:7420", address(host))
    }

    /// Cuts two hosts off from each other, or ends that; each reaches all the others. Of one pair at a time.
    pub fn part(&self, hosts: [usize; 2], parted: bool) {
        let isolated = if parted { "on" } else { "off" };
        for host in hosts {
            let port =
                format!("-n {} link set port{host} type bridge_slave isolated {isolated}", self.switch());
            ip(&port).expect("a port");
        }
    }

    /// Cuts a host off, or ends that.
    pub fn wire(&self, host: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&format!("-n {} link set wire {state}", self.space(host))).expect("a wire");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let spaces = (0..self.count).map(|host| self.space(host)).chain([self.switch()]);
        // Where making them ended early, the last are not there.
        spaces.for_each(|space| drop(ip(&format!("netns del {space}"))));
    }
}

fn address(host: usize) -> String {
    format!("10.214.9.{}", host + 1)
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`ip` (package iproute2): {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`ip {words}` said: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
