// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <daemon/export_spec.hpp>

#include <string>

BOOST_AUTO_TEST_SUITE(export_spec_test)

using namespace verbena::daemon;

namespace {

// What parse_export() says of a bad argument; empty if it finds nothing wrong.
std::string complaint(const char* spec)
{
    try {
        (void)parse_export(spec);
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

bool complains(const char* spec, const char* part) { return complaint(spec).find(part) != std::string::npos; }

} // namespace

BOOST_AUTO_TEST_CASE(a_directory_alone_has_safe_defaults)
{
    const export_config e = parse_export("/srv/data");
    BOOST_TEST(e.directory == "/srv/data");
    BOOST_TEST(e.pseudo == "");
    BOOST_TEST(e.backend == "posixfs");
    BOOST_TEST(e.root_squash);
    BOOST_TEST(!e.read_only);
    BOOST_TEST(!e.async);
    BOOST_TEST(!e.secure);
    BOOST_TEST(e.anonuid == 65534U);
    BOOST_TEST(e.clients.empty());
    BOOST_TEST(e.transports.empty());
}

BOOST_AUTO_TEST_CASE(the_directory_ends_at_the_last_colon_with_a_slash)
{
    BOOST_TEST(parse_export("/srv/data:/data").directory == "/srv/data");
    BOOST_TEST(parse_export("/srv/data:/data").pseudo == "/data");
    BOOST_TEST(parse_export("/a:/b:/c").directory == "/a:/b");
    BOOST_TEST(parse_export("/a:/b:/c").pseudo == "/c");
    BOOST_TEST(parse_export("/a:b").directory == "/a:b");
    BOOST_TEST(parse_export("/a:b").pseudo == "");
    BOOST_TEST(parse_export(":/scratch,backend=memfs").directory == "");
    BOOST_TEST(parse_export(":/scratch,backend=memfs").pseudo == "/scratch");
    // A colon among the options belongs to them.
    BOOST_TEST(parse_export("/a,clients=fd00::/8").directory == "/a");
    BOOST_TEST(parse_export("/a,clients=fd00::/8").clients.at(0) == "fd00::/8");
}

BOOST_AUTO_TEST_CASE(a_backslash_takes_the_next_character_as_it_is)
{
    BOOST_TEST(parse_export("/a\\:/b").directory == "/a:/b");
    BOOST_TEST(parse_export("/a\\:/b").pseudo == "");
    BOOST_TEST(parse_export("/a:\\/b").directory == "/a:/b");
    BOOST_TEST(parse_export("/a\\,ro").directory == "/a,ro");
    BOOST_TEST(!parse_export("/a\\,ro").read_only);
    BOOST_TEST(parse_export("/a\\\\:/b").directory == "/a\\");
    BOOST_TEST(parse_export("/a\\\\:/b").pseudo == "/b");
    BOOST_TEST(complains("/a\\", "backslash"));
}

BOOST_AUTO_TEST_CASE(every_option_is_understood)
{
    const export_config e = parse_export("/a:/b,ro,root_squash=no,all_squash,anonuid=0,anongid=4294967294,"
                                         "clients=10.0.0.0/8,clients=*,transport=tcp,transport=iwarp,"
                                         "backend=memfs,crossmnt,async,secure,handles=path");
    BOOST_TEST(e.read_only);
    BOOST_TEST(!e.root_squash);
    BOOST_TEST(e.all_squash);
    BOOST_TEST(e.anonuid == 0U);
    BOOST_TEST(e.anongid == 4294967294U);
    BOOST_TEST((e.clients == std::vector<std::string>{"10.0.0.0/8", "*"}));
    BOOST_TEST((e.transports == std::vector<std::string>{"tcp", "iwarp"}));
    BOOST_TEST(e.backend == "memfs");
    BOOST_TEST(e.crossmnt);
    BOOST_TEST(e.async);
    BOOST_TEST(e.secure);
    BOOST_TEST(e.handles == "path");
    BOOST_TEST(!parse_export("/a,rw,sync,root_squash=yes").async);
}

BOOST_AUTO_TEST_CASE(a_bad_option_is_named_with_its_cure)
{
    BOOST_TEST(complains("/a,root_sqash=no", "did you mean root_squash?"));
    BOOST_TEST(complains("/a,frobnicate", "known: ro rw"));
    BOOST_TEST(complains("/a,anonuid=-1", "anonuid takes a number"));
    BOOST_TEST(complains("/a,anonuid=4294967296", "anonuid takes a number"));
    BOOST_TEST(complains("/a,anonuid=4294967295", "anonuid takes a number from 0 to 4294967294"));
    BOOST_TEST(complains("/a,anonuid=", "anonuid takes a number"));
    BOOST_TEST(complains("/a,anonuid=7x", "anonuid takes a number"));
    BOOST_TEST(complains("/a,ro=maybe", "yes or no"));
    BOOST_TEST(complains("/a,clients=", "needs a value"));
    BOOST_TEST(complains("/a,ro,ro", "stands twice"));
    BOOST_TEST(complains("/a,ro,rw", "stands twice"));
    BOOST_TEST(complains("/a,", "an option is empty"));
    BOOST_TEST(complains("/a,,ro", "an option is empty"));
    BOOST_TEST(complains("/a,=x", "an option is empty"));
}

BOOST_AUTO_TEST_SUITE_END()
