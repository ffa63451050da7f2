// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/result.hpp>

#include <memory>

BOOST_AUTO_TEST_SUITE(result_test)

using verbena::error;
using verbena::result;

BOOST_AUTO_TEST_CASE(value_moves_out)
{
    result<std::unique_ptr<int>> r = std::make_unique<int>(7);
    BOOST_REQUIRE(r);
    std::unique_ptr<int> p = std::move(*r);
    BOOST_TEST(*p == 7);
}

BOOST_AUTO_TEST_CASE(error_keeps_code_context_and_detail)
{
    result<int> r = error(std::errc::message_size, "record longer than 8 MiB", 9000000);
    BOOST_REQUIRE(!r);
    BOOST_TEST((r.error() == std::errc::message_size));
    BOOST_TEST(r.error().detail() == 9000000u);
    BOOST_TEST(r.error().message().find("record longer than 8 MiB") == 0u);
}

BOOST_AUTO_TEST_CASE(assignment_switches_between_value_and_error)
{
    result<std::string> r = std::string(100, 'x');
    r = result<std::string>(std::errc::io_error);
    BOOST_TEST(!r);
    r = result<std::string>("again");
    BOOST_TEST(*r == "again");
}

BOOST_AUTO_TEST_SUITE_END()
