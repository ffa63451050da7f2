// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <client/percentile.hpp>

#include <numeric>

BOOST_AUTO_TEST_SUITE(client_percentile_test)

using verbena::cli::percentile;

BOOST_AUTO_TEST_CASE(nearest_rank)
{
    std::vector<double> hundred(100);
    std::iota(hundred.begin(), hundred.end(), 1);
    for (const double p : {1.0, 50.0, 90.0, 99.0, 100.0})
        BOOST_TEST(percentile(hundred, p) == p);
    BOOST_TEST(percentile(hundred, 0) == 1);
    BOOST_TEST(percentile(hundred, 99.9) == 100);
    BOOST_TEST(percentile(hundred, 50.1) == 51);
    BOOST_TEST(percentile({7}, 50) == 7);
    BOOST_TEST(percentile({1, 2, 3, 4}, 50) == 2);
    BOOST_TEST(percentile({1, 2, 3, 4}, 75.1) == 4);
}

BOOST_AUTO_TEST_SUITE_END()
