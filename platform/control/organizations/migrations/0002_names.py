from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("organizations", "0001_initial")]

    operations = [
        migrations.RenameField("organization", "takes_idempotency_keys", "idempotency_enabled"),
    ]
