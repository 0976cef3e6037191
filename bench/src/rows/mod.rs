//! All rows, in the order of the tables.

mod apps_matrix;
mod apps_one_host;
mod apps_table3;
mod audit_prediction_error;
mod audit_seconds;
mod crash_cluster_failures;
mod crash_local_failures;
mod crash_tight_failures;
mod ephemeral_left;
mod explicit_messages;
mod fence_stale_ms;
mod govindan_figures;
mod govindan_table1;
mod govindan_table2;
mod heap;
mod heap_damaged;
mod heap_page_moves;
mod hotspot;
mod images_data;
mod images_link;
mod images_pss_ratio;
mod images_run;
mod inject;
mod install;
mod ipc;
mod ipc_out_of_line;
mod local_attach_ratio;
mod local_fault_in_thread_ratio;
mod local_fault_ratio;
mod local_idle_cost;
mod local_python_attach_ratio;
mod local_resident_ratio;
mod local_seq_controlled_ratio;
mod local_seq_direct_ratio;
mod local_sparse_kib;
mod local_sync_bulk_ratio;
mod local_sync_small;
mod local_sync_ten_vs_sqlite;
mod local_sync_vs_lmdb;
mod local_sync_vs_raw;
mod local_warm_attach_ratio;
mod mach_fig8;
mod mach_table1;
mod model_violations;
mod mount;
mod pager;
mod postgres;
mod preload;
mod ptshare_bank;
mod ptshare_hugetlb;
mod ptshare_module;
mod python_pickle;
mod rebase_add_one;
mod rebase_differences;
mod rebase_memory;
mod rebase_private;
mod rebase_time;
mod rebase_worst_ms;
mod remote_fault_ratio;
mod remote_handoff_per_s;
mod remote_idle_cost;
mod remote_readers_ratio;
mod remote_seq_ratio;
mod remote_upgrades;
mod restart_pause_ratio;
mod rm;
mod scale_hosts_1000;
mod scale_memory;
mod scale_roles;
mod security;
mod security_fuzz;
mod segments_alloc_ratio;
mod segments_divergence;
mod segments_fill;
mod segments_growth_copies;
mod segments_races;
mod sim_violations;
mod slow_collateral;
mod snapshots;
mod sprite_remote;
mod sprite_table4;
mod sprite_table5;
mod sprite_table6;
mod swap_lost;
mod sync_local;
mod sync_remote;
mod sync_remote_ratio;
mod types;
mod types_shared;
mod wired;

use crate::row::Row;

/// Every row there is.
pub fn all() -> Vec<&'static dyn Row> {
    vec![
        &local_resident_ratio::ResidentRatio,
        &local_attach_ratio::AttachRatio,
        &local_fault_ratio::FaultRatio,
        &local_fault_in_thread_ratio::FaultInThreadRatio,
        &local_idle_cost::IdleCost,
        &local_seq_direct_ratio::SeqDirectRatio,
        &local_seq_controlled_ratio::SeqControlledRatio,
        &local_sync_vs_lmdb::SyncVsLmdb,
        &local_sync_vs_raw::SyncVsRaw,
        &local_sync_small::SyncCleanRatio,
        &local_sync_small::SyncOneRatio,
        &local_sync_ten_vs_sqlite::SyncTenVsSqlite,
        &local_sync_bulk_ratio::SyncBulkRatio,
        &local_warm_attach_ratio::WarmAttachRatio,
        &local_sparse_kib::SparseKib,
        &local_python_attach_ratio::PythonAttachRatio,
        &local_python_attach_ratio::PythonFirstAttachRatio,
        &python_pickle::PickleRatio,
        &ephemeral_left::Left,
        &install::WheelFailures,
        &install::WheelMib,
        &install::DebFailures,
        &crash_local_failures::CrashLocalFailures,
        &inject::InjectFailures,
        &inject::PointsMissed,
        &security::BREACHES,
        &security::COLLATERAL,
        &security_fuzz::FuzzFailures,
        &sprite_table4::SpriteTable4,
        &sprite_table6::SpriteTable6,
        &govindan_table1::GovindanTable1,
        &govindan_table2::GovindanTable2,
        &audit_prediction_error::AuditPredictionError,
        &audit_seconds::AuditSeconds,
        &remote_fault_ratio::ReadFaultRatio,
        &remote_fault_ratio::WriteFaultRatio,
        &pager::FaultRatio,
        &pager::ThroughputRatio,
        &remote_handoff_per_s::HandoffPerSecond,
        &remote_upgrades::UpgradeRatio,
        &remote_upgrades::CounterRatio,
        &remote_readers_ratio::ReadersRatio,
        &remote_seq_ratio::SeqRatio,
        &remote_idle_cost::RemoteIdleCost,
        &model_violations::ModelViolations,
        &sim_violations::SimViolations,
        &explicit_messages::ExplicitMessages,
        &hotspot::CentralMessages,
        &hotspot::ForwardingMessages,
        &hotspot::Fairness,
        &hotspot::FirstCycle,
        &crash_cluster_failures::CrashClusterFailures,
        &crash_tight_failures::CrashTightFailures,
        &fence_stale_ms::FenceStaleMs,
        &restart_pause_ratio::RestartPauseRatio,
        &slow_collateral::SlowCollateral,
        &scale_hosts_1000::Hosts1000,
        &scale_memory::BytesPerPage,
        &scale_memory::UntouchedBytes,
        &mach_fig8::MachFig8,
        &mach_table1::MachTable1,
        &apps_table3::Table3,
        &apps_matrix::Speedup,
        &apps_matrix::ProcessorRatio,
        &apps_one_host::OneHostCost,
        &rm::TABLE_1,
        &rm::TABLE_2,
        &rm::TABLE_3,
        &rm::TABLE_4,
        &rm::TABLE_5,
        &rm::TABLE_6,
        &rm::TABLE_7,
        &rm::TABLE_8,
        &sprite_remote::SpriteTable4Remote,
        &sprite_table5::SpriteTable5,
        &sprite_remote::SpriteTable6Remote,
        &ptshare_hugetlb::KibPerProcess,
        &ptshare_hugetlb::SecondFaults,
        &ptshare_hugetlb::AttachRatio,
        &ptshare_module::KibPerProcess,
        &ptshare_module::SecondFaults,
        &ptshare_bank::Fig9To11,
        &ptshare_bank::Fig12,
        &ptshare_bank::BankFlat,
        &ptshare_bank::BankGain,
        &postgres::PageTablesRatio,
        &postgres::TpsVs4k,
        &postgres::TpsVsHuge,
        &preload::CostRatio,
        &preload::StartRatio,
        &mount::DirectRatio,
        &mount::SeqRatio,
        &snapshots::Ratio,
        &snapshots::WriteRatio,
        &snapshots::Torn,
        &wired::Faults,
        &wired::AttachRatio,
        &wired::Mappings,
        &wired::TailRatio,
        &ipc::NullRatio,
        &ipc::WiredRatio,
        &ipc::Copies,
        &ipc_out_of_line::OutOfLineRatio,
        &swap_lost::Lost,
        &sync_local::LocalLockRatio,
        &sync_remote_ratio::RemoteLockRatio,
        &sync_remote::RemoteLockMessages,
        &sync_remote::Violations,
        &types::TranslateRatio,
        &types::Table2,
        &heap::AllocRatio,
        &heap::Scaling,
        &heap_page_moves::PageMoves,
        &heap::AgainstFirstFit,
        &heap_damaged::Damaged,
        &types_shared::ReadRatio,
        &types_shared::Translations,
        &segments_fill::Fill,
        &segments_fill::FillMoving,
        &segments_alloc_ratio::AllocRatio,
        &segments_growth_copies::GrowthCopies,
        &segments_divergence::Divergence,
        &segments_races::Races,
        &images_data::DataInclude,
        &images_data::DataVsRkyv,
        &rebase_time::ClangTime,
        &rebase_private::ClangPrivate,
        &rebase_time::ChromiumTime,
        &rebase_private::ChromiumPrivate,
        &rebase_worst_ms::WorstMs,
        &rebase_memory::Memory,
        &rebase_differences::Differences,
        &rebase_add_one::AddOneRatio,
        &images_run::RunVsStatic,
        &images_run::RunVsLazy,
        &images_run::RunGrowth,
        &images_link::LinkVsDynamic,
        &images_link::LinkVsStatic,
        &images_pss_ratio::PssRatio,
        &govindan_figures::GovindanFig3,
        &govindan_figures::GovindanFig4,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_may_take_longer_than_forty_minutes() {
        for row in all() {
            assert!(row.limit() <= crate::row::LONGEST, "{}", row.id());
        }
    }

    #[test]
    fn ids_are_the_promised_ones() {
        let ids: Vec<_> = all().iter().map(|row| row.id()).collect();
        let promised = "local.resident_ratio local.attach_ratio local.fault_ratio local.fault_in_thread_ratio \
                        local.idle_cost local.seq_direct_ratio local.seq_controlled_ratio local.sync_vs_lmdb \
                        local.sync_vs_raw local.sync_clean_ratio local.sync_one_ratio local.sync_ten_vs_sqlite local.sync_bulk_ratio local.warm_attach_ratio local.sparse_kib local.python_attach_ratio local.python_first_attach_ratio python.pickle_us_ratio ephemeral.left install.wheel_failures install.wheel_mib install.deb_failures crash.local_failures inject.failures \
                        inject.points_missed \
                        security.breaches security.collateral_ms security.fuzz_failures sprite.table4 sprite.table6 govindan.table1 govindan.table2 \
                        audit.prediction_error audit.seconds remote.read_fault_ratio \
                        remote.write_fault_ratio pager.fault_ratio pager.throughput_ratio remote.handoff_per_s remote.upgrade_ratio remote.counter_ratio remote.readers_ratio remote.seq_ratio remote.idle_cost \
                        model.violations sim.violations explicit.messages \
                        hotspot.central_messages hotspot.forwarding_messages hotspot.fairness \
                        hotspot.first_cycle crash.cluster_failures crash.tight_failures fence.stale_ms restart.pause_ratio slow.collateral scale.hosts_1000 scale.bytes_per_page \
                        scale.untouched_bytes mach.fig8 mach.table1 \
                        apps.table3 apps.matrix_speedup apps.matrix_processor_ratio apps.one_host_cost \
                        mach.rm_table1 mach.rm_table2 mach.rm_table3 mach.rm_table4 \
                        mach.rm_table5 mach.rm_table6 mach.rm_table7 mach.rm_table8 sprite.table4_remote sprite.table5 \
                        sprite.table6_remote ptshare.hugetlb_kib_per_process ptshare.hugetlb_second_faults ptshare.attach_us_ratio ptshare.module_kib_per_process ptshare.module_second_faults ptshare.fig9_11 ptshare.fig12 ptshare.bank_flat ptshare.bank_gain \
                        postgres.page_tables_ratio postgres.tps_vs_4k postgres.tps_vs_huge preload.cost_ratio \
                        preload.start_ratio mount.direct_ratio mount.seq_ratio \
                        snapshot.ratio snapshot.write_ratio snapshot.torn \
                        wired.faults wired.attach_ratio wired.mappings wired.tail_ratio \
                        ipc.null_ratio ipc.wired_ratio ipc.copies ipc.out_of_line_ratio swap.lost sync.local_lock_ratio sync.remote_lock_ratio sync.remote_lock_messages sync.violations types.translate_gb_s_ratio types.table2 \
                        heap.alloc_ratio heap.scaling heap.page_moves heap.first_fit heap.damaged \
                        types.read_ratio types.translations \
                        segments.fill segments.fill_moving segments.alloc_ratio segments.growth_copies \
                        segments.divergence segments.races \
                        images.data_include_us images.data_vs_rkyv \
                        rebase.clang_time rebase.clang_private rebase.chromium_time \
                        rebase.chromium_private rebase.worst_ms rebase.memory rebase.differences \
                        rebase.add_one_ratio images.run_vs_static images.run_vs_lazy images.run_growth \
                        images.link_vs_dynamic images.link_vs_static images.pss_ratio govindan.fig3 govindan.fig4";
        assert_eq!(ids.join(" "), promised);
    }
}
