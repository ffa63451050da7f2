// SPDX-License-Identifier: Apache-2.0
// The argument of --export, as far as one can see it in the effective configuration.
#include <boost/test/unit_test.hpp>

#include <verbena/core/module/settings.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/services/service.hpp>

#include <algorithm>
#include <string>

BOOST_AUTO_TEST_SUITE(export_word_test)

using namespace verbena;

namespace {

// What `verbenad nfs --export SPEC` makes of it.
setting_values parse_export(const char* spec)
{
    service s;
    for (const module_descriptor* m : {&modules::memfs, &modules::mount, &modules::nfs, &modules::posixfs})
        s.modules().add(*m);
    const auto settings = s.modules().find("nfs")->settings();
    const auto parse = std::ranges::find(settings, "export", &setting::name)->parse_word;
    setting_values nfs;
    nfs.set("export", {setting_values::value::tables{parse(spec)}});
    setting_values::value table{setting_values::value::tables{std::move(nfs)}};
    table.is_table = true;
    setting_values root;
    root.set("nfs", std::move(table));
    s.configure(std::move(root));
    return s.effective().table("nfs").tables("export").at(0);
}

std::string directory_of(const char* spec) { return parse_export(spec).text("directory"); }
std::string pseudo_of(const char* spec) { return parse_export(spec).text("pseudo"); }

std::string complaint(const char* spec)
{
    try {
        (void)parse_export(spec);
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

bool complains(const char* spec, const char* part)
{
    const std::string said = complaint(spec);
    BOOST_TEST_INFO_SCOPE(said);
    return said.find(part) != std::string::npos;
}

} // namespace

// As exports(5) has it.
BOOST_AUTO_TEST_CASE(a_mount_point_is_the_directory_or_another_one)
{
    for (const char* spec : {"/srv/disk:/data,mountpoint", "/srv/disk:/data,mp", "/srv/disk:/data,mp=yes"}) {
        const setting_values e = parse_export(spec);
        BOOST_TEST(e.flag("mountpoint"));
        BOOST_TEST(e.text("mountpoint_at").empty());
    }
    for (const char* spec : {"/srv/disk/data:/data,mountpoint=/srv/disk", "/srv/disk/data:/data,mp=/srv/disk",
                             "/srv/disk/data:/data,mountpoint_at=/srv/disk"})
        BOOST_TEST(parse_export(spec).text("mountpoint_at") == "/srv/disk");
    BOOST_TEST(!parse_export("/srv/disk:/data").flag("mountpoint"));
    BOOST_TEST(complains("/srv/disk:/data,mountpoint=disk", "mountpoint"));
    BOOST_TEST(complains("/srv/disk:/data,mountpoint_at=disk", "is no absolute path"));
}

BOOST_AUTO_TEST_CASE(a_directory_alone_has_safe_defaults)
{
    const setting_values e = parse_export("/srv/data");
    BOOST_TEST(e.text("directory") == "/srv/data");
    BOOST_TEST(e.text("pseudo") == "/export");
    BOOST_TEST(e.text("backend") == "posixfs");
    BOOST_TEST(e.flag("root_squash"));
    BOOST_TEST(!e.flag("read_only"));
    BOOST_TEST(!e.flag("async"));
    BOOST_TEST(!e.flag("secure"));
    BOOST_TEST(e.number("anonuid") == 65534U);
    BOOST_TEST(e.list("clients").empty());
    BOOST_TEST(e.list("transports").empty());
}

BOOST_AUTO_TEST_CASE(the_directory_ends_at_the_last_colon_with_a_slash)
{
    BOOST_TEST(directory_of("/srv/data:/data") == "/srv/data");
    BOOST_TEST(pseudo_of("/srv/data:/data") == "/data");
    BOOST_TEST(directory_of("/a:/b:/c") == "/a:/b");
    BOOST_TEST(pseudo_of("/a:/b:/c") == "/c");
    BOOST_TEST(directory_of("/a:b") == "/a:b");
    BOOST_TEST(pseudo_of("/a:b") == "/export");
    BOOST_TEST(pseudo_of(":/scratch,backend=memfs") == "/scratch");
    // A colon among the options belongs to them.
    BOOST_TEST(directory_of("/a,clients=fd00::/8") == "/a");
    BOOST_TEST(parse_export("/a,clients=fd00::/8").list("clients").at(0) == "fd00::/8");
}

BOOST_AUTO_TEST_CASE(a_backslash_takes_the_next_character_as_it_is)
{
    BOOST_TEST(directory_of("/a\\:/b") == "/a:/b");
    BOOST_TEST(pseudo_of("/a\\:/b") == "/export");
    BOOST_TEST(directory_of("/a:\\/b") == "/a:/b");
    BOOST_TEST(directory_of("/a\\,ro") == "/a,ro");
    BOOST_TEST(!parse_export("/a\\,ro").flag("read_only"));
    BOOST_TEST(directory_of("/a\\\\:/b") == "/a\\");
    BOOST_TEST(pseudo_of("/a\\\\:/b") == "/b");
    BOOST_TEST(complains("/a\\", "backslash"));
}

BOOST_AUTO_TEST_CASE(every_option_is_understood)
{
    const setting_values e = parse_export("/a:/b,ro,root_squash=no,all_squash,anonuid=0,anongid=4294967294,"
                                          "clients=10.0.0.0/8,clients=*,transport=tcp,transport=iwarp,"
                                          "backend=posixfs,crossmnt,async,secure,handles=path");
    for (const char* flag : {"read_only", "all_squash", "crossmnt", "async", "secure"})
        BOOST_TEST(e.flag(flag), flag);
    BOOST_TEST(!e.flag("root_squash"));
    BOOST_TEST(e.number("anonuid") == 0U);
    BOOST_TEST(e.number("anongid") == 4294967294U);
    BOOST_TEST((e.list("clients") == std::vector<std::string>{"10.0.0.0/8", "*"}));
    BOOST_TEST((e.list("transports") == std::vector<std::string>{"tcp", "iwarp"}));
    BOOST_TEST(e.text("handles") == "path");
    BOOST_TEST(!parse_export("/a,rw,sync,root_squash=yes").flag("async"));
    BOOST_TEST(parse_export("/a,rw=no").flag("read_only"));
    // Under their own names too.
    BOOST_TEST(parse_export("/a,read_only").flag("read_only"));
    BOOST_TEST(parse_export(":/b,directory=/a").text("directory") == "/a");
}

BOOST_AUTO_TEST_CASE(a_bad_option_is_named_with_its_cure)
{
    BOOST_TEST(complains("/a,root_sqash=no", "did you mean root_squash?"));
    BOOST_TEST(complains("/a,frobnicate", "unknown option frobnicate; known: pseudo backend"));
    for (const char* bad :
         {"/a,anonuid=-1", "/a,anonuid=4294967296", "/a,anonuid=4294967295", "/a,anonuid=", "/a,anonuid=7x"})
        BOOST_TEST(complains(bad, " must be a number from 0 to 4294967294"), bad);
    BOOST_TEST(complains("/a,anonuid=7x", "--export /a,anonuid=7x: option anonuid=7x must be"));
    for (const char* bad : {"/a,ro=maybe", "/a,rw=maybe", "/a,sync=maybe"})
        BOOST_TEST(complains(bad, "must be yes or no"), bad);
    BOOST_TEST(complains("/a,clients=", "needs a value"));
    BOOST_TEST(complains("/a,key=hunter2,clients=", "--export /a,key=(not shown),clients=: option"));
    BOOST_TEST(complains("/a,directory=/b", "directory stands in front of the pseudo-path already"));
    for (const char* twice : {"/a:/b,pseudo=/c", "/a,ro,ro", "/a,ro,rw", "/a,ro,read_only", "/a,sync,async"})
        BOOST_TEST(complains(twice, "stands twice"), twice);
    for (const char* empty : {"/a,", "/a,,ro", "/a,=x"})
        BOOST_TEST(complains(empty, "an option is empty"), empty);
    BOOST_TEST(
        complains("/a:/m,backend=memfs", "the back end memfs takes nothing in front of the pseudo-path"));
}

BOOST_AUTO_TEST_SUITE_END()
