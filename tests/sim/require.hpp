// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/test/unit_test.hpp>

/// BOOST_REQUIRE for what a simulation asks millions of times: Boost.Test hears of it only if it does not hold, as its record of all that does
/// took a sixth of the time.
#define SIM_REQUIRE(condition)                 \
    do {                                       \
        if (!(condition))                      \
            BOOST_FAIL("not so: " #condition); \
    } while (false)
