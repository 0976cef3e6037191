//! What a host tells of objects, mappings and itself, as the data classes of `commonhold/_records.py`.

use commonhold::tags::Types;
use commonhold::{
    EntryInfo, HostStatus, MappingInfo, ObjectInfo, OnLastDeath, PagerKind, Protection, Sharing, SyncMode,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn record<'py>(py: Python<'py>, class: &str, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    py.import("commonhold._records")?.getattr(class)?.call((), Some(fields))
}

/// A dict whose keys are the fields' names.
macro_rules! fields {
    ($py:expr, { $($name:ident: $value:expr),* $(,)? }) => {{
        let fields = PyDict::new($py);
        $( fields.set_item(stringify!($name), $value)?; )*
        fields
    }};
}

/// An entry of a directory.
pub(crate) fn entry<'py>(py: Python<'py>, entry: &EntryInfo) -> PyResult<Bound<'py, PyAny>> {
    match entry {
        EntryInfo::Object(info) => object(py, info),
        EntryInfo::Directory { name, ownership } => {
            let fields = fields!(py, {
                name: name.as_str(),
                uid: ownership.uid,
                gid: ownership.gid,
                mode: ownership.mode,
            });
            record(py, "DirectoryStat", &fields)
        }
    }
}

/// All there is to know of an object.
pub(crate) fn object<'py>(py: Python<'py>, info: &ObjectInfo) -> PyResult<Bound<'py, PyAny>> {
    let options = &info.options;
    let (pager, pager_name) = match &options.pager {
        PagerKind::Anonymous => ("anonymous", None),
        PagerKind::File => ("file", None),
        PagerKind::External { pager } => ("external", Some(pager.as_str())),
    };
    let fields = fields!(py, {
        id: info.id.0,
        name: info.name.as_ref().map(commonhold::Name::as_str),
        uid: info.ownership.uid,
        gid: info.ownership.gid,
        mode: info.ownership.mode,
        size_bytes: options.size_bytes,
        pager: pager,
        pager_name: pager_name,
        file_path: (!info.file_path.is_empty()).then_some(info.file_path.as_str()),
        sync: sync_word(options.sync),
        controlled: info.controlled,
        freezable: options.freezable,
        read_only: options.read_only,
        reserved: options.reserves(),
        on_last_death: if options.on_last_death == OnLastDeath::Keep { "keep" } else { "revert" },
        ephemeral_ms: options.ephemeral_ms,
        budget_bytes: options.budget_bytes,
        fault_deadline_ms: options.fault_deadline(),
        pager_deadline_ms: options.pager_deadline_ms,
        description: options.description.as_str(),
        resident_bytes: info.resident_bytes,
        dirty_bytes: info.dirty_bytes,
        spilled_bytes: info.spilled_bytes,
        mappings: info.mappings,
        opens: info.opens,
        charged_to: info.charged_to.as_str(),
        warning: (!info.warning.is_empty()).then_some(info.warning.as_str()),
        home: (!info.home.is_empty()).then_some(info.home.as_str()),
        is_elsewhere: info.is_elsewhere,
        lost_pages: info.losses.lost_pages,
        reverted_pages: info.losses.reverted_pages,
        loss_generation: info.losses.generation,
        translation: info.options.translation.word(),
        page_tables: info.page_tables,
        address: info.options.fixed.map(|fixed| fixed.address),
        room_bytes: info.options.fixed.map(|fixed| fixed.room_bytes),
        types: tagged(&info.options.types),
        translated_pages: info.translated.pages,
        untranslatable: info.translated.losses.count(),
    });
    record(py, "ObjectStat", &fields)
}

/// First byte, bytes and tag of each run of pages that has one.
pub(crate) fn tagged(types: &Types) -> Vec<(u64, u64, String)> {
    let page = commonhold::PAGE_SIZE_BYTES;
    types.all().map(|run| (run.first * page, run.count * page, run.tag.to_string())).collect()
}

fn sync_word(sync: SyncMode) -> &'static str {
    match sync {
        SyncMode::Plain => "plain",
        SyncMode::Ordered => "ordered",
        SyncMode::Atomic => "atomic",
    }
}

/// One mapping of one client.
pub(crate) fn mapping<'py>(py: Python<'py>, info: &MappingInfo) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, {
        pid: info.pid,
        uid: info.uid,
        address: info.address,
        length_bytes: info.length_bytes,
        offset_bytes: info.offset_bytes,
        writable: info.protection == Protection::ReadWrite,
        shared: info.sharing == Sharing::Shared,
        faults: info.faults,
    });
    record(py, "MappingStat", &fields)
}

/// State of a host.
pub(crate) fn status<'py>(py: Python<'py>, status: &HostStatus) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, {
        version: status.version.as_str(),
        host_pid: status.host_pid,
        keeper_pid: status.keeper_pid,
        uid: status.uid,
        state_directory: status.state_directory.as_str(),
        uptime_ms: status.uptime_ms,
        generation: status.generation,
        objects: status.objects,
        clients: status.clients,
        mappings: status.mappings,
        resident_bytes: status.resident_bytes,
        direct_bytes: status.direct_bytes,
        budget_bytes: status.budget_bytes,
        faults: status.faults,
        pages_installed: status.pages_installed,
        pages_evicted: status.pages_evicted,
        syncs: status.syncs,
        kernel_faults: status.kernel_faults,
        quota_bytes: status.quota_bytes,
        repairs: status.repairs.clone(),
        machine: status.machine.as_str(),
    });
    record(py, "HostStatus", &fields)
}
