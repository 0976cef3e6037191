/* Prints what the header says of sizes, offsets and constants, for comparison with what Rust says. */
#include "commonhold.h"
#include <stdio.h>

#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu %zu\n", offsetof(type, field), sizeof(((type *)0)->field))

int main(void) {
    SIZE(ch_options);
    FIELD(ch_options, struct_bytes);
    FIELD(ch_options, size_bytes);
    FIELD(ch_options, budget_bytes);
    FIELD(ch_options, pager_name);
    FIELD(ch_options, description);
    FIELD(ch_options, pager);
    FIELD(ch_options, sync);
    FIELD(ch_options, on_last_death);
    FIELD(ch_options, reserve);
    FIELD(ch_options, controlled);
    FIELD(ch_options, freezable);
    FIELD(ch_options, fault_deadline_ms);
    FIELD(ch_options, pager_deadline_ms);
    FIELD(ch_options, mode);
    FIELD(ch_options, coherence);
    FIELD(ch_options, page_size_bytes);
    FIELD(ch_options, replicas);
    FIELD(ch_options, home_moves);
    FIELD(ch_options, translation);
    FIELD(ch_options, fixed);
    FIELD(ch_options, room_bytes);
    FIELD(ch_options, ephemeral);
    FIELD(ch_options, linger_ms);
    SIZE(ch_info);
    FIELD(ch_info, struct_bytes);
    FIELD(ch_info, id);
    FIELD(ch_info, size_bytes);
    FIELD(ch_info, resident_bytes);
    FIELD(ch_info, dirty_bytes);
    FIELD(ch_info, spilled_bytes);
    FIELD(ch_info, budget_bytes);
    FIELD(ch_info, mappings);
    FIELD(ch_info, opens);
    FIELD(ch_info, is_directory);
    FIELD(ch_info, pager);
    FIELD(ch_info, sync);
    FIELD(ch_info, on_last_death);
    FIELD(ch_info, controlled);
    FIELD(ch_info, freezable);
    FIELD(ch_info, uid);
    FIELD(ch_info, gid);
    FIELD(ch_info, mode);
    FIELD(ch_info, unused);
    FIELD(ch_info, name);
    FIELD(ch_info, description);
    FIELD(ch_info, file_path);
    FIELD(ch_info, warning);
    FIELD(ch_info, home);
    FIELD(ch_info, lost_pages);
    FIELD(ch_info, reverted_pages);
    FIELD(ch_info, loss_generation);
    FIELD(ch_info, is_elsewhere);
    FIELD(ch_info, translation);
    FIELD(ch_info, page_tables);
    FIELD(ch_info, address);
    FIELD(ch_info, room_bytes);
    SIZE(ch_message);
    FIELD(ch_message, struct_bytes);
    FIELD(ch_message, length);
    FIELD(ch_message, landing);
    FIELD(ch_message, landed_bytes);
    FIELD(ch_message, kind);
    FIELD(ch_message, unused);
    FIELD(ch_message, object);
    SIZE(ch_place);
    FIELD(ch_place, address);
    FIELD(ch_place, length);
    FIELD(ch_place, generation);
    SIZE(ch_region);
    FIELD(ch_region, address);
    FIELD(ch_region, length);
    FIELD(ch_region, protection);
    FIELD(ch_region, sharing);
    FIELD(ch_region, object);
    FIELD(ch_region, offset);
    SIZE(ch_pager);
    FIELD(ch_pager, struct_bytes);
    FIELD(ch_pager, page_in);
    FIELD(ch_pager, page_out);
    FIELD(ch_pager, user);
    SIZE(ch_type);
    FIELD(ch_type, name);
    FIELD(ch_type, kind);
    FIELD(ch_type, bytes);
    FIELD(ch_type, alignment);
    FIELD(ch_type, of);
    FIELD(ch_type, fields);
    FIELD(ch_type, field_count);
    SIZE(ch_field);
    FIELD(ch_field, name);
    FIELD(ch_field, offset);
    FIELD(ch_field, type);
    FIELD(ch_field, count);
    printf("version %s %d.%d.%d %d %s\n", CH_VERSION, CH_VERSION_MAJOR, CH_VERSION_MINOR, CH_VERSION_PATCH,
           CH_VERSION_NUMBER > CH_VERSION_OF(0, 0, 99), ch_version());
    printf("states %d %d %d %d %d %d\n", CH_INVALID, CH_ABSENT, CH_CLEAN, CH_DIRTY, CH_LOST, CH_LOCKED);

    ch_options set = CH_OPTIONS_INIT, filled;
    ch_options_init(&filled);
    printf("defaults equal %d\n",
           set.struct_bytes == filled.struct_bytes && set.size_bytes == filled.size_bytes &&
               set.budget_bytes == filled.budget_bytes && set.pager_name == filled.pager_name &&
               set.description == filled.description && set.pager == filled.pager && set.sync == filled.sync &&
               set.on_last_death == filled.on_last_death && set.reserve == filled.reserve &&
               set.controlled == filled.controlled && set.freezable == filled.freezable &&
               set.fault_deadline_ms == filled.fault_deadline_ms &&
               set.pager_deadline_ms == filled.pager_deadline_ms && set.mode == filled.mode &&
               set.coherence == filled.coherence && set.page_size_bytes == filled.page_size_bytes);
    return 0;
}
