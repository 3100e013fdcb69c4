//! The eight attributes of pools.

use crate::kit::resources::*;

const SWITCHES: [Attribute; 3] = [
    Attribute::ReuseFollowEventDependencies,
    Attribute::ReuseAllowOpportunistic,
    Attribute::ReuseAllowInternalDependencies,
];
const READ_ONLY: [Attribute; 2] = [Attribute::ReservedMemCurrent, Attribute::UsedMemCurrent];
const HIGHEST: [Attribute; 2] = [Attribute::ReservedMemHigh, Attribute::UsedMemHigh];

/// Usage goes up and down with a buffer, and the highest values stay until they are set back.
fn usage_is_followed(resource: &Resource) {
    let read = |attribute| resource.attribute(attribute).unwrap();
    let used = read(Attribute::UsedMemCurrent);
    let buffer = resource.allocate(8 * MIB, LEGACY).unwrap();
    buffer.fill(1, 1).unwrap();
    synchronize();
    assert!(read(Attribute::UsedMemCurrent) >= used + 8 * MIB);
    assert!(read(Attribute::ReservedMemCurrent) >= read(Attribute::UsedMemCurrent));
    buffer.close().unwrap();
    synchronize();
    assert_eq!(read(Attribute::UsedMemCurrent), used);
    assert!(read(Attribute::UsedMemHigh) >= used + 8 * MIB, "the highest value stays");
    assert!(read(Attribute::ReservedMemHigh) >= 8 * MIB);
    resource.trim(0).unwrap();
    for highest in HIGHEST {
        refused(resource.set_attribute(highest, 1), Status::InvalidArgument, &["0 only"]);
        resource.set_attribute(highest, 0).unwrap();
    }
    assert_eq!(read(Attribute::UsedMemHigh), read(Attribute::UsedMemCurrent));
    assert_eq!(read(Attribute::ReservedMemHigh), read(Attribute::ReservedMemCurrent));
    for attribute in READ_ONLY {
        for value in [0, 1] {
            refused(resource.set_attribute(attribute, value), Status::InvalidArgument, &["read-only"]);
        }
    }
}

fn all_can_be_set(resource: &Resource) {
    for switch in SWITCHES {
        for value in [0, 1, 1, 0] {
            resource.set_attribute(switch, value).unwrap();
            assert_eq!(resource.attribute(switch).unwrap(), value);
        }
        refused(resource.set_attribute(switch, 2), Status::InvalidArgument, &["0 or 1"]);
        refused(resource.set_attribute(switch, u64::MAX), Status::InvalidArgument, &["0 or 1"]);
        assert_eq!(resource.attribute(switch).unwrap(), 0, "a refusal changes nothing");
    }
    for value in [64 * MIB, u64::MAX, 0] {
        resource.set_attribute(Attribute::ReleaseThreshold, value).unwrap();
        assert_eq!(resource.attribute(Attribute::ReleaseThreshold).unwrap(), value);
    }
}

#[test]
fn a_pool_of_the_device_has_all_eight() {
    let Some(resource) = had("a pool of the device", Resource::device(|_| ())) else { return };
    usage_is_followed(&resource);
    all_can_be_set(&resource);
    usage_is_followed(&resource);
}

#[test]
fn so_has_a_pinned_pool_of_the_driver() {
    let Some(resource) = had("a pinned pool", Resource::pinned(|_| ())) else { return };
    if resource.info().handle == 0 {
        println!("skipped: Forebay's own pool answers here");
        return;
    }
    usage_is_followed(&resource);
    all_can_be_set(&resource);
}

#[test]
fn so_has_a_managed_pool() {
    let Some(resource) = had("a managed pool", Resource::managed(|_| ())) else { return };
    if resource.info().handle == 0 {
        println!("skipped: no managed pools here");
        return;
    }
    // What a managed pool reports of its use is the driver's affair; each can be read.
    for number in 1..=8 {
        let mut value = 0;
        let read = unsafe {
            forebay::abi::resource::object::forebay_resource_get_attribute(resource.0, number, &raw mut value)
        };
        outcome(read).unwrap();
    }
    all_can_be_set(&resource);
}

#[test]
fn a_threshold_keeps_memory_and_a_trim_gives_it_back() {
    let Some(resource) = had("a pool of the device", Resource::device(|_| ())) else { return };
    resource.set_attribute(Attribute::ReleaseThreshold, u64::MAX).unwrap();
    resource.allocate(32 * MIB, LEGACY).unwrap().close().unwrap();
    synchronize();
    assert!(resource.attribute(Attribute::ReservedMemCurrent).unwrap() >= 32 * MIB, "kept");
    resource.trim(0).unwrap();
    assert_eq!(resource.attribute(Attribute::ReservedMemCurrent).unwrap(), 0);
    resource.set_attribute(Attribute::ReleaseThreshold, 0).unwrap();
    resource.allocate(32 * MIB, LEGACY).unwrap().close().unwrap();
    synchronize();
    assert_eq!(resource.attribute(Attribute::ReservedMemCurrent).unwrap(), 0, "given back by itself");
}

#[test]
fn a_forebay_pool_answers_all_eight_and_takes_two() {
    let pool = Pool::new();
    let own = Resource::pinned(|options| options.own_pool = 1);
    let resources = [Some(Resource::of_pool(&pool).unwrap()), had("a pinned pool of Forebay's own", own)];
    for resource in resources.iter().flatten() {
        usage_is_followed(resource);
        let read = |attribute| resource.attribute(attribute).unwrap();
        assert_eq!(SWITCHES.map(read), [0, 1, 1]);
        assert_eq!(read(Attribute::ReleaseThreshold), u64::MAX);
        for attribute in [SWITCHES[0], SWITCHES[1], SWITCHES[2], Attribute::ReleaseThreshold] {
            refused(resource.set_attribute(attribute, 0), Status::Unsupported, &["Forebay pool"]);
        }
    }
    let grows = Pool::with(|options| options.grow_first = 1).unwrap();
    let grows = Resource::of_pool(&grows).unwrap();
    assert_eq!(grows.attribute(Attribute::ReuseAllowInternalDependencies).unwrap(), 0);
}

#[test]
fn unknown_numbers_are_refused() {
    use forebay::abi::resource::object::{forebay_resource_get_attribute, forebay_resource_set_attribute};
    let resource = Resource::of_pool(shared()).unwrap();
    let mut value = 7;
    for number in [0, 9, 100, u32::MAX] {
        let read = unsafe { forebay_resource_get_attribute(resource.0, number, &raw mut value) };
        refused(outcome(read), Status::InvalidArgument, &[&number.to_string(), "1 to 8"]);
        let written = unsafe { forebay_resource_set_attribute(resource.0, number, 0) };
        refused(outcome(written), Status::InvalidArgument, &[&number.to_string()]);
    }
    assert_eq!(value, 7);
}
