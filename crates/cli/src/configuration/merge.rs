//! The command line and the file together.

use crate::arguments::entry::{MachineType, Metrics, Place};
use crate::arguments::host::Start;

impl Start {
    /// What the command line says counts, and of the file what it leaves open.
    pub fn over(self, file: Start) -> Start {
        let has_metrics = self.metrics.metrics.is_some();
        Start {
            state: self.state.or(file.state),
            budget: self.budget.or(file.budget),
            quota: self.quota.or(file.quota),
            max_objects: self.max_objects.or(file.max_objects),
            max_clients: self.max_clients.or(file.max_clients),
            file_system: if self.file_system.is_empty() { file.file_system } else { self.file_system },
            machine: MachineType { machine: self.machine.machine.or(file.machine.machine) },
            place: self.place.over(file.place),
            metrics: Metrics {
                metrics: self.metrics.metrics.or(file.metrics.metrics),
                // Where others may ask is said together with whether they may.
                metrics_beyond_loopback: self.metrics.metrics_beyond_loopback
                    || !has_metrics && file.metrics.metrics_beyond_loopback,
            },
            ..self
        }
    }
}

impl Place {
    fn over(self, mut file: Place) -> Place {
        // One of the three ways to find the registry takes the place of the other, with all that belongs to it.
        if self.join.is_some() {
            (file.registry, file.registry_ca, file.lease) = (None, None, None);
            (file.registry_cert, file.registry_key) = (None, None);
        }
        if self.registry.is_some() {
            file.join = None;
        }
        if self.lease.is_some() && self.registry.is_none() && file.registry.is_none() {
            file.join = None;
        }
        if self.plain {
            file.identity = None;
        }
        if self.identity.is_some() {
            (file.plain, file.even_beyond_loopback) = (false, false);
        }
        let has_own = self.registry_cert.is_some() || self.registry_key.is_some();
        let (cert, key) = if has_own { (None, None) } else { (file.registry_cert, file.registry_key) };
        Place {
            listen: self.listen.or(file.listen),
            listens_at: self.listens_at,
            join: self.join.or(file.join),
            registry: self.registry.or(file.registry),
            registry_ca: self.registry_ca.or(file.registry_ca),
            registry_cert: self.registry_cert.or(cert),
            registry_key: self.registry_key.or(key),
            lease: self.lease.or(file.lease),
            name: self.name.or(file.name),
            page_size: self.page_size.or(file.page_size),
            idle_poll: self.idle_poll.or(file.idle_poll),
            no_relay: self.no_relay || file.no_relay,
            identity: self.identity.or(file.identity),
            plain: self.plain || file.plain,
            even_beyond_loopback: self.even_beyond_loopback || file.even_beyond_loopback,
        }
    }
}
