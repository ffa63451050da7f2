// SPDX-License-Identifier: Apache-2.0
// main() of each unit test program.
#define BOOST_TEST_MODULE verbena
#include <boost/test/unit_test.hpp>

#include "checks.hpp"

void verbena::checks::at(const char* file, std::size_t line)
{
    boost::unit_test::unit_test_log.set_checkpoint(file, line);
}

void verbena::checks::report(const boost::test_tools::assertion_result& result, const char* text,
                             const char* file, std::size_t line, level how,
                             boost::test_tools::tt_detail::check_type type)
{
    boost::test_tools::tt_detail::report_assertion(result, BOOST_TEST_LAZY_MSG(text), file, line, how, type,
                                                   0);
}
