// SPDX-License-Identifier: Apache-2.0
// main() of each unit test program.
#define BOOST_TEST_MODULE verbena
#include <boost/test/unit_test.hpp>
