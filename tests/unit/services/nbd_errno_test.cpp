// SPDX-License-Identifier: Apache-2.0
// What NBD clients are told of errors and of losses.
#include <boost/test/unit_test.hpp>

#include "../../../services/nbdkit/losses_told.hpp"
#include "../../../services/nbdkit/nbd_errno.hpp"

#include <future>
#include <optional>

BOOST_AUTO_TEST_SUITE(nbd_errno_test)

using namespace verbena;

namespace {

int told(int code) { return nbd::errno_of(error::from_errno(code)); }

} // namespace

// The NBD protocol, "Error values": these and EROFS, EDQUOT and EFBIG, of which nbdkit makes EPERM and ENOSPC.
BOOST_AUTO_TEST_CASE(what_nbd_knows_is_passed_on)
{
    for (const int code :
         {EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, EOPNOTSUPP, ESHUTDOWN, EROFS, EDQUOT, EFBIG})
        BOOST_TEST(told(code) == code);
}

// nbdkit says EINVAL for all else, as if the client had asked for something wrong.
BOOST_AUTO_TEST_CASE(what_nbd_does_not_know_is_an_input_output_error)
{
    for (const int code : {ENOTCONN, ESTALE, EBUSY, EAGAIN, ETIMEDOUT, ECANCELED, ENOENT, EACCES, 0})
        BOOST_TEST(told(code) == EIO);
    BOOST_TEST(nbd::errno_of(error(std::make_error_code(std::future_errc::no_state))) == EIO);
}

// Whoever comes after a loss may be a writer that was there before.
BOOST_AUTO_TEST_CASE(a_loss_that_a_client_was_not_told_of_is_for_the_next_one)
{
    nbd::losses_told all;
    nbd::losses_told::client reader(all);
    std::optional<nbd::losses_told::client> writer(std::in_place, all);
    reader.tell(2);
    BOOST_TEST(reader.told() == 2u);
    BOOST_TEST(writer->told() == 0u);
    const nbd::losses_told::client later(all);
    BOOST_TEST(later.told() == 2u);
    writer.reset();
    writer.emplace(all);
    BOOST_TEST(writer->told() == 0u);
    writer->tell(2);
    writer.reset();
    writer.emplace(all);
    BOOST_TEST(writer->told() == 2u);
}

BOOST_AUTO_TEST_CASE(what_a_client_wrote_since_its_flush_may_be_lost)
{
    nbd::losses_told all;
    nbd::losses_told::client writer(all);
    BOOST_TEST(!writer.may_have_lost(1)); // it has only read
    writer.changes(1);
    BOOST_TEST(!writer.may_have_lost(1)); // it has written behind the loss
    writer.changes(2);
    BOOST_TEST(writer.may_have_lost(2));
    auto flushed = writer.flushes();
    BOOST_TEST(!writer.may_have_lost(2));
    writer.changes(2); // meanwhile
    BOOST_TEST(!writer.may_have_lost(2));
    writer.changes_back(flushed); // the flush has failed
    BOOST_TEST(writer.may_have_lost(2));
    flushed = writer.flushes();
    BOOST_TEST(!writer.may_have_lost(3));
}

BOOST_AUTO_TEST_SUITE_END()
