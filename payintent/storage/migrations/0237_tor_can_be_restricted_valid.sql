-- concurrently: by itself; the table has a row for each restricted country
ALTER TABLE restriction VALIDATE CONSTRAINT restriction_country;
