//! The numbers of a host as text for Prometheus (the OpenMetrics format).

use commonhold_object::{Counts, HostStatus, MessageCount, MessageKind, ObjectCounts};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;

/// Objects of which each has lines of its own, at most: the oldest that are in use, so that lines do not come and go.
pub const OBJECTS_SHOWN: usize = 256;

/// What is told, at one time.
#[derive(Debug)]
pub struct Exposition {
    /// Of the host.
    pub status: HostStatus,
    /// Of its objects.
    pub objects: Vec<ObjectCounts>,
    /// Objects beyond those.
    pub not_shown: usize,
}

/// A number of an object: its name, what it is, and where it stands.
type OfObject = (&'static str, &'static str, fn(&Counts) -> u64);

const OF_OBJECT: [OfObject; 10] = [
    ("waits", "Faults that waited for another host, the pager, or room", |c| c.waits),
    ("refused_faults", "Faults that ended in SIGBUS", |c| c.refused),
    ("forwards", "Requests of other hosts that were passed on", |c| c.forwards),
    ("hand_overs", "Pages that this host got the right to write", |c| c.hand_overs),
    ("taken_pages", "Pages of which this host lost a right", |c| c.taken),
    ("syncs", "Syncs sent to the home under explicit coherence", |c| c.syncs),
    ("synced_pages", "Pages of these syncs", |c| c.synced_pages),
    ("conflicts", "Synced pages that another host had synced meanwhile", |c| c.conflicts),
    ("translated_pages", "Pages that came from hosts of other machine types", |c| c.translated.pages),
    ("stored_translated_pages", "Pages read or stored in the format of another machine type", |c| {
        c.stored_translated.pages
    }),
];

/// A number of the host.
type OfHost = (&'static str, &'static str, fn(&HostStatus) -> u64);

const COUNTERS: [OfHost; 4] = [
    ("commonhold_host_faults", "Faults served", |s| s.faults),
    ("commonhold_host_installed_pages", "Pages brought in or mapped by faults", |s| s.pages_installed),
    ("commonhold_host_evicted_pages", "Pages evicted", |s| s.pages_evicted),
    ("commonhold_host_syncs", "Syncs done", |s| s.syncs),
];

const GAUGES: [OfHost; 7] = [
    ("commonhold_host_objects", "Objects that exist", |s| s.objects),
    ("commonhold_host_clients", "Clients connected", |s| s.clients),
    ("commonhold_host_mappings", "Mappings of controlled objects", |s| s.mappings),
    ("commonhold_host_resident_bytes", "Bytes of frames in memory", |s| s.resident_bytes),
    ("commonhold_host_direct_bytes", "Bytes of memory of direct objects without a file", |s| s.direct_bytes),
    ("commonhold_host_budget_bytes", "Budget for those frames, bytes", |s| s.budget_bytes),
    ("commonhold_host_generation", "Host processes that this keeper has started", |s| s.generation),
];

impl Exposition {
    /// The text.
    pub fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn objects(&self) -> impl Iterator<Item = (String, &ObjectCounts)> {
        // A nameless one still has its number: two of them are two lines.
        let label =
            |o: &ObjectCounts| o.name.as_ref().map_or_else(|| format!("#{}", o.id.0), ToString::to_string);
        self.objects.iter().map(move |object| (label(object), object))
    }

    fn messages(&self, mut metric: MetricEncoder<'_>) -> fmt::Result {
        for (name, object) in self.objects() {
            for message in &object.messages {
                for (way, number) in ways(message) {
                    let labels = [
                        ("object", name.as_str()),
                        ("message", &message.name),
                        ("kind", message.kind.word()),
                        ("way", way),
                    ];
                    count(&mut metric, &labels, number)?;
                }
            }
        }
        Ok(())
    }

    fn kinds(&self, mut metric: MetricEncoder<'_>) -> fmt::Result {
        for (name, object) in self.objects().filter(|(_, object)| object.shared) {
            for kind in MessageKind::ALL {
                let (sent, received, local) = object.of_kind(kind);
                for (way, number) in [("sent", sent), ("received", received), ("local", local)] {
                    let labels = [("object", name.as_str()), ("kind", kind.word()), ("way", way)];
                    count(&mut metric, &labels, number)?;
                }
            }
        }
        Ok(())
    }

    /// What was translated, and what had no counterpart.
    fn types(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ways = [("received", self.status.translated), ("stored", self.status.stored_translated)];
        let help = "Pages of other machine types that were translated";
        let name = "commonhold_host_translated_pages";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (way, done) in &ways {
            count(&mut metric, &[("way", way)], done.pages)?;
        }
        let help =
            "Numbers in them that have no counterpart on this machine type, or on that of what is stored";
        let name = "commonhold_host_untranslatable";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (way, done) in &ways {
            let losses = done.losses;
            for (what, number) in [
                ("overflow", losses.overflows),
                ("underflow", losses.underflows),
                ("nan", losses.nans),
                ("negative zero", losses.negative_zeros),
                ("rounded", losses.rounded),
            ] {
                count(&mut metric, &[("way", way), ("what", what)], number)?;
            }
        }
        let help = "The machine type of this host";
        let mut metric =
            encoder.encode_descriptor("commonhold_host_machine", help, None, MetricType::Gauge)?;
        let labels = [("type", self.status.machine.as_str())];
        ConstGauge::new(1).encode(metric.encode_family(&labels)?)
    }

    fn host(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in COUNTERS {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value(&self.status)).encode(metric)?;
        }
        self.types(encoder)?;
        for (name, help, value) in GAUGES {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value(&self.status)).encode(metric)?;
        }
        let help = "Objects in use that have no lines of their own here";
        let metric =
            encoder.encode_descriptor("commonhold_host_objects_not_shown", help, None, MetricType::Gauge)?;
        ConstGauge::new(self.not_shown as u64).encode(metric)
    }
}

fn ways(message: &MessageCount) -> [(&'static str, u64); 3] {
    [("sent", message.sent), ("received", message.received), ("local", message.local)]
}

fn count<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    number: u64,
) -> fmt::Result {
    ConstCounter::new(number).encode(metric.encode_family(labels)?)
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.host(&mut encoder)?;
        let help = "Faults of an object, by sort";
        let mut metric =
            encoder.encode_descriptor("commonhold_object_faults", help, None, MetricType::Counter)?;
        for (name, object) in self.objects() {
            let c = &object.counts;
            for (sort, number) in
                [("read", c.read_faults), ("write", c.write_faults), ("protection", c.protection_faults)]
            {
                count(&mut metric, &[("object", name.as_str()), ("sort", sort)], number)?;
            }
        }
        let help = "Messages between schedulers, by the name of the message";
        let metric =
            encoder.encode_descriptor("commonhold_object_messages", help, None, MetricType::Counter)?;
        self.messages(metric)?;
        let help = "Messages between schedulers, by kind";
        let metric = encoder.encode_descriptor(
            "commonhold_object_messages_by_kind",
            help,
            None,
            MetricType::Counter,
        )?;
        self.kinds(metric)?;
        let help = "Bytes of pages to and from other hosts";
        let mut metric =
            encoder.encode_descriptor("commonhold_object_bytes", help, None, MetricType::Counter)?;
        for (name, object) in self.objects() {
            let c = &object.counts;
            for (way, number) in [("sent", c.bytes_sent), ("received", c.bytes_received)] {
                count(&mut metric, &[("object", name.as_str()), ("way", way)], number)?;
            }
        }
        let help = "Seconds that faults waited";
        let mut metric =
            encoder.encode_descriptor("commonhold_object_wait_seconds", help, None, MetricType::Counter)?;
        for (name, object) in self.objects() {
            let labels = [("object", name.as_str())];
            ConstCounter::new(object.counts.waited_ns as f64 / 1e9).encode(metric.encode_family(&labels)?)?;
        }
        for (name, help, value) in OF_OBJECT {
            let full = format!("commonhold_object_{name}");
            let mut metric = encoder.encode_descriptor(&full, help, None, MetricType::Counter)?;
            for (name, object) in self.objects() {
                count(&mut metric, &[("object", name.as_str())], value(&object.counts))?;
            }
        }
        Ok(())
    }
}
