// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../../../transports/rdma/removal_watch.hpp"

BOOST_AUTO_TEST_SUITE(rdma_removal_test)

using namespace std::string_view_literals;
using verbena::rdma::is_removal;

// The form of a uevent: ACTION@DEVPATH, then KEY=VALUE, each with a NUL.
BOOST_AUTO_TEST_CASE(a_uevent_of_the_device_file_that_goes)
{
    BOOST_TEST(
        is_removal("remove@/devices/virtual/infiniband_verbs/uverbs0\0ACTION=remove\0"
                   "DEVPATH=/devices/virtual/infiniband_verbs/uverbs0\0SUBSYSTEM=infiniband_verbs\0"sv));
    BOOST_TEST(is_removal("remove@/devices/pci0000:00/0000:00:03.0/infiniband_verbs/uverbs12\0"sv));
}

BOOST_AUTO_TEST_CASE(other_uevents)
{
    BOOST_TEST(!is_removal(""sv));
    BOOST_TEST(!is_removal("remove@/devices/virtual/infiniband/rxe0\0ACTION=remove\0"sv));
    BOOST_TEST(!is_removal("add@/devices/virtual/infiniband_verbs/uverbs0\0ACTION=add\0"sv));
    BOOST_TEST(!is_removal("remove@/devices/virtual/net/eth0\0X=/infiniband_verbs/uverbs0\0"sv));
}

BOOST_AUTO_TEST_SUITE_END()
