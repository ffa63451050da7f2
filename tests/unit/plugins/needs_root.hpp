// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/test/unit_test.hpp>
#include <unistd.h>

namespace suite {

/// Fails a case that has nothing to test without root's rights: what did not run must not count as passed.
inline void needs_root(const char* what_for)
{
    BOOST_REQUIRE_MESSAGE(::geteuid() == 0, "root's rights are needed " << what_for << ": run as root");
}

} // namespace suite
