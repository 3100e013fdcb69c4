//! All of these tests again, through the CUDA layer: on a libcuda that runs on RAM, with work that is late.

use std::process::Command;

use crate::kit::abi::on_cuda;
use crate::kit::programs::says;
use crate::kit::standin::Libcuda;

#[test]
fn all_of_them_through_the_cuda_layer() {
    if on_cuda() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.arg("--test-threads=1").env("FOREBAY_HOST_LATE", "30");
    says(Libcuda::new("resources").serve(&mut child), "test result: ok");
}
