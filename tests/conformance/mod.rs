//! One suite for every driver: what the layers above rely on, asked from outside.
//!
//! Each check panics with what it expected. Data is judged by copying it to the program's own memory.
//! Where CUDA does not promise which error it answers, any error will do, as long as nothing changed.

mod device;
mod host_memory;
mod kit;
mod memory;
mod pools;
mod sharing;
mod stream;
mod together;
mod virtual_memory;

use forebay::driver::Driver;

/// One check: its name, and what it does to a driver.
pub type Check = (&'static str, fn(&dyn Driver));

/// Every check, in the order in which they build on one another.
#[must_use]
pub fn suite() -> Vec<Check> {
    vec![
        ("capabilities_make_sense", device::capabilities_make_sense),
        ("a_device_out_of_range_is_refused", device::a_device_out_of_range_is_refused),
        ("bytes_written_are_read_back", memory::bytes_written_are_read_back),
        ("default_streams_work", stream::default_streams_work),
        ("a_stream_knows_its_device", stream::a_stream_knows_its_device),
        ("one_handle_at_two_addresses_is_one_memory", memory::one_handle_at_two_addresses_is_one_memory),
        ("a_released_handle_lives_while_mapped", memory::a_released_handle_lives_while_mapped),
        ("a_chunk_moves_with_its_data", memory::a_chunk_moves_with_its_data),
        ("several_handles_are_granted_and_unmapped_at_once", memory::several_handles_are_granted_and_unmapped_at_once),
        ("part_of_a_handle_is_refused", memory::part_of_a_handle_is_refused),
        ("a_wrong_map_is_refused", memory::a_wrong_map_is_refused),
        ("wrong_sizes_are_refused", memory::wrong_sizes_are_refused),
        ("more_than_there_is_is_out_of_memory", memory::more_than_there_is_is_out_of_memory),
        ("memory_info_follows_create", memory::memory_info_follows_create),
        ("plain_memory_works", memory::plain_memory_works),
        ("an_event_never_recorded_has_passed", stream::an_event_never_recorded_has_passed),
        ("an_event_waited_for_has_passed", stream::an_event_waited_for_has_passed),
        ("a_stream_waits_for_another", stream::a_stream_waits_for_another),
        ("a_stream_is_idle_when_its_work_is_done", stream::a_stream_is_idle_when_its_work_is_done),
        ("synchronize_waits_for_every_stream", stream::synchronize_waits_for_every_stream),
        ("work_of_a_destroyed_stream_still_runs", stream::work_of_a_destroyed_stream_still_runs),
        ("a_device_event_stands_for_every_stream", stream::a_device_event_stands_for_every_stream),
        ("a_device_event_knows_destroyed_streams", stream::a_device_event_knows_destroyed_streams),
        ("a_stream_waits_for_a_device_event", stream::a_stream_waits_for_a_device_event),
        ("identities_are_never_used_again", stream::identities_are_never_used_again),
        ("the_per_thread_stream_is_another_on_each_thread", stream::the_per_thread_stream_is_another_on_each_thread),
        ("an_ordinary_stream_is_not_captured", stream::an_ordinary_stream_is_not_captured),
        ("a_stream_serves_every_thread", stream::a_stream_serves_every_thread),
        ("driver_pools_can_be_trimmed", stream::driver_pools_can_be_trimmed),
        ("granularities_make_sense", virtual_memory::granularities_make_sense),
        ("every_kind_of_device_memory_works", virtual_memory::every_kind_of_device_memory_works),
        ("what_capabilities_deny_is_refused", virtual_memory::what_capabilities_deny_is_refused),
        (
            "memory_of_a_numa_node_is_the_hosts_and_the_devices",
            virtual_memory::memory_of_a_numa_node_is_the_hosts_and_the_devices,
        ),
        ("hints_and_alignments_are_kept", virtual_memory::hints_and_alignments_are_kept),
        ("access_that_is_not_named_stays", virtual_memory::access_that_is_not_named_stays),
        ("a_device_has_a_name_of_its_own", virtual_memory::a_device_has_a_name_of_its_own),
        ("patterns_are_filled", virtual_memory::patterns_are_filled),
        ("default_pools_are_the_drivers", pools::default_pools_are_the_drivers),
        ("pool_memory_lives_in_stream_order", pools::pool_memory_lives_in_stream_order),
        ("pool_attributes_follow", pools::pool_attributes_follow),
        ("a_pools_limits_hold", pools::a_pools_limits_hold),
        ("a_destroyed_pools_memory_stays_until_freed", pools::a_destroyed_pools_memory_stays_until_freed),
        ("a_pools_access_is_said_and_set", pools::a_pools_access_is_said_and_set),
        ("pools_of_host_memory_work", pools::pools_of_host_memory_work),
        ("pools_of_managed_memory_work", pools::pools_of_managed_memory_work),
        ("a_pool_leaves_only_if_it_was_made_for_it", pools::a_pool_leaves_only_if_it_was_made_for_it),
        ("page_locked_memory_is_reached_from_both_sides", host_memory::page_locked_memory_is_reached_from_both_sides),
        ("freeing_page_locked_memory_waits", host_memory::freeing_page_locked_memory_waits),
        ("memory_of_the_program_is_registered_once", host_memory::memory_of_the_program_is_registered_once),
        ("managed_memory_is_everybodys", host_memory::managed_memory_is_everybodys),
        ("a_pointer_is_known_for_what_it_is", host_memory::a_pointer_is_known_for_what_it_is),
        ("exported_memory_comes_back_as_the_same", sharing::exported_memory_comes_back_as_the_same),
        ("a_descriptor_holds_its_memory", sharing::a_descriptor_holds_its_memory),
        ("what_cannot_leave_is_refused", sharing::what_cannot_leave_is_refused),
        ("garbage_is_not_imported", sharing::garbage_is_not_imported),
        ("plain_memory_is_named_for_others_alone", sharing::plain_memory_is_named_for_others_alone),
        ("threads_do_not_disturb_one_another", together::threads_do_not_disturb_one_another),
        ("nothing_stays_behind", together::nothing_stays_behind),
    ]
}
