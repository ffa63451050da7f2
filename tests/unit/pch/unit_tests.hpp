// SPDX-License-Identifier: Apache-2.0
// Precompiled for all unit tests: a tenth of the time that a cold build takes went into reading these. unit_test_suite.hpp is not
// among them, so that it makes each file's own main() and module.
#include <boost/test/framework.hpp>
#include <boost/test/test_tools.hpp>
#include <boost/test/tree/auto_registration.hpp>
#include <boost/test/tree/global_fixture.hpp>
#include <boost/test/tree/test_case_template.hpp>
#define BOOST_TEST_MAIN

#include <verbena/core/reactor.hpp>
#include <verbena/core/scope.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
