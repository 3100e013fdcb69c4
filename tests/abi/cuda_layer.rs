//! All of these tests again, through the CUDA layer.

use crate::kit::standin::all_tests_again;

#[test]
fn all_of_them_through_the_cuda_layer() {
    all_tests_again("abi");
}
